# The book in a container: the same two commands. Not tried yet where this was written, which has no
# container engine.
#   docker build -t rmutils . && docker run -p 8000:8000 rmutils
# Binder and hubs start JupyterLab in it, as a user whose number they give. For a JupyterHub, an image
# of its own adds the hub's version:
#   FROM rmutils
#   RUN pip install jupyterhub==VERSION-OF-YOUR-HUB
#   CMD ["jupyterhub-singleuser"]
FROM python:3.11-slim
RUN apt-get update && apt-get install -y --no-install-recommends git make \
    && rm -rf /var/lib/apt/lists/*
ARG NB_USER=reader
ARG NB_UID=1000
RUN useradd --create-home --uid ${NB_UID} ${NB_USER} && install -d -o ${NB_UID} /book
USER ${NB_USER}
ENV PIP_NO_CACHE_DIR=1 OMP_NUM_THREADS=1 PATH=/book/.venv/bin:$PATH
WORKDIR /book
COPY --chown=${NB_UID} . .
RUN make book .venv/.lab
EXPOSE 8000
CMD ["make", "serve", "HOST=0.0.0.0"]
