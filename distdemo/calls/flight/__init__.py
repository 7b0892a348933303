"""Read what torch's flight recorder has kept: in the ranks, and in dumps after the end of a job."""
