# The worker's image: one static program, the certificates that it trusts, and
# its licences. `make image` builds it; a test in localstack/machine keeps its
# own layer under 40 MB. The worker serves an installation on AWS, or one in a
# mounted folder, and finds GPUs if the container has any.
#
#   docker run --gpus all --network host -e AWS_REGION -e ROLLOUT_CONFIG IMAGE --cloud aws --engine http://127.0.0.1:8000/v1
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o /layer/gpuworker ./gpuworker
RUN go run ./scripts/dist -notices > /layer/THIRD-PARTY.txt && cp LICENSE /layer/
RUN mkdir -p /layer/etc/ssl/certs && cp /etc/ssl/certs/ca-certificates.crt /layer/etc/ssl/certs/ && install -d -m 1777 /layer/tmp

FROM scratch
COPY --from=build /layer /
USER 65532:65532
STOPSIGNAL SIGTERM
ENTRYPOINT ["/gpuworker"]
