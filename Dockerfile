# The worker as an image of its own: one static program and the certificates
# that it trusts. `make image` builds it; its own layer is held to 40 MB by
# localstack/machine. It works for an installation on AWS or in a folder that is
# mounted, and finds GPUs if the container is given any.
#
#   docker run --gpus all --network host -e AWS_REGION -e ROLLOUT_CONFIG IMAGE --cloud aws --engine http://127.0.0.1:8000/v1
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o /layer/gpuworker ./gpuworker
RUN mkdir -p /layer/etc/ssl/certs && cp /etc/ssl/certs/ca-certificates.crt /layer/etc/ssl/certs/ && install -d -m 1777 /layer/tmp

FROM scratch
COPY --from=build /layer /
USER 65532:65532
STOPSIGNAL SIGTERM
ENTRYPOINT ["/gpuworker"]
