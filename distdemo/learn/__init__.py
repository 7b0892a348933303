"""What a learner needs: steps to try, exercises to solve, and common mistakes."""
