#!/bin/sh
# Install distdemo with what its commands can use, as the Dockerfile and the development container do.
# Usage: image.sh PYTHON. Exits with an error unless an all-reduce on two ranks is right.
set -eu
cd "$(dirname "$0")/.."
"$1" -m pip install --quiet --disable-pip-version-check --no-cache-dir --constraint constraints.txt '.[all]'
"$1" -m distdemo all-reduce --world-size 2 --quiet
