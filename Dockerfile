# The book in a container: the same two commands. Not tried yet where this was written, which has no
# container engine.
#   docker build -t rmutils . && docker run -p 8000:8000 rmutils
FROM python:3.11-slim
RUN apt-get update && apt-get install -y --no-install-recommends git make \
    && rm -rf /var/lib/apt/lists/*
ENV PIP_NO_CACHE_DIR=1
WORKDIR /book
COPY . .
RUN make book
EXPOSE 8000
CMD ["make", "serve", "HOST=0.0.0.0"]
