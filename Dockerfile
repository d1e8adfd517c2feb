# The server. The same image runs web, events, worker, beat and one-off commands; compose.yaml shows how.
FROM python:3.13-slim

ENV PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    C4A_PRODUCTION=true \
    C4A_VAR_DIR=/srv/var

WORKDIR /srv/c4a

COPY requirements.txt .
RUN pip install --no-cache-dir --require-hashes -r requirements.txt

COPY . .

# Static files are part of the image. No database or broker is asked for them; the addresses only have to be well-formed.
RUN C4A_DATABASE_URL=postgresql://build@build.invalid/build C4A_REDIS_URL=redis://build.invalid/0 \
        python manage.py collectstatic --noinput --verbosity 0 \
    && python -m compileall -q . \
    && useradd --system --no-create-home c4a \
    && chown c4a /srv/var

USER c4a
EXPOSE 8000
CMD ["granian", "--interface", "wsgi", "--host", "0.0.0.0", "--port", "8000", "--workers", "2", "--blocking-threads", "4", \
     "c4a_project.wsgi:application"]
