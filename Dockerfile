# distdemo on Windows and macOS: docker build -t distdemo . && docker run --rm -it distdemo
FROM python:3.12-slim
WORKDIR /distdemo
COPY . .
# PyTorch's index of CPU builds: docker build --build-arg PIP_EXTRA_INDEX_URL=...
ARG PIP_EXTRA_INDEX_URL
RUN sh tools/image.sh /usr/local/bin/python
WORKDIR /work
ENTRYPOINT ["distdemo"]
