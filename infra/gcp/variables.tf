# What rollout.toml says. `go run .` writes it to rollout.auto.tfvars.json.
variable "settings" {
  description = "The deployment's config, as `go run .` writes it."
  type = object({
    project       = string
    region        = string
    name          = string # starts the names of all resources
    bucket        = string
    prefix        = string # of all keys of the bucket; may be empty
    database      = string
    topics        = string # starts the names of topics and subscriptions
    push_account  = string # the account that calls the functions; made if it has the default name
    secrets       = list(string)
    secret_prefix = string               # starts their names in Secret Manager
    notify_secret = optional(string, "") # signs the events of the webhook; "" posts none
    config        = string               # for functions and machines, as TOML
    job_config    = string               # for the tasks of Cloud Run jobs, which end within 10 s
    pools = map(object({
      model          = string
      machines       = string       # "group" or "cloud-run"
      provisioning   = string       # "spot", "flex-start" or "standard"
      instance_types = list(string) # of a group
      engine_image   = string
      engine_env     = map(string) # of the server
      disk_gb        = number
      boot_seconds   = number # until the servers are ready
      image          = string # of the machines; empty is machine_image
      labels         = map(string)
      model_bucket   = string # empty if the model lies in no bucket
      model_folder   = string
      trains         = optional(bool, false) # on processors alone
    }))
    max_machines = number # of each pool
  })
}

variable "image" {
  description = "The functions' image, with its digest, as `docker push` shows it."
  type        = string
  validation {
    condition     = can(regex("@sha256:[0-9a-f]{64}$", var.image))
    error_message = "Name the image by its digest (…@sha256:…): a service keeps the old image if a tag moves."
  }
}

variable "worker" {
  description = "The worker program for linux/amd64; `make machine-worker` builds it."
  type        = string
  default     = "../../out/machine/gpuworker"
}

variable "gpu" {
  description = "Whether to make groups of machines and Cloud Run jobs. If false, workers run elsewhere."
  type        = bool
  default     = true
}

variable "machine_image" {
  description = "The image of machines with GPUs: it has NVIDIA's driver 580 or later, Docker and NVIDIA's container toolkit."
  type        = string
  default     = "projects/deeplearning-platform-release/global/images/family/common-cu129-ubuntu-2204-nvidia-580"
}

variable "cloud_run_gpu" {
  description = "The GPU of Cloud Run jobs: nvidia-l4 or nvidia-rtx-pro-6000."
  type        = string
  default     = "nvidia-l4"
  validation {
    condition     = contains(["nvidia-l4", "nvidia-rtx-pro-6000"], var.cloud_run_gpu)
    error_message = "Use nvidia-l4 or nvidia-rtx-pro-6000."
  }
}

variable "external_addresses" {
  description = "Whether machines have external addresses. Without them, images and models must come from Google Cloud."
  type        = bool
  default     = true
}

variable "subnetwork" {
  description = "An existing subnetwork for the machines, as projects/P/regions/R/subnetworks/S. Empty makes a network."
  type        = string
  default     = ""
}

variable "bucket" {
  description = "Whether to make the bucket (made), or to use one that exists (existing)."
  type        = string
  default     = "made"
  validation {
    condition     = contains(["made", "existing"], var.bucket)
    error_message = "Use made or existing."
  }
}

variable "database" {
  description = "Whether to make the Firestore database (made), or to use one that exists (existing)."
  type        = string
  default     = "made"
  validation {
    condition     = contains(["made", "existing"], var.database)
    error_message = "Use made or existing."
  }
}

variable "kms_key" {
  description = "The full name of a KMS key of the region, for all that is stored. Empty uses Google's keys."
  type        = string
  default     = ""
}

variable "viewers" {
  description = "Who may see runs and fetch their results. Example: [\"group:ml@example.org\"]"
  type        = list(string)
  default     = []
}

variable "operators" {
  description = "Who may submit and steer runs as well."
  type        = list(string)
  default     = []
}

variable "email" {
  description = "Who gets alerts, budget notices and what happens to runs and machines. Empty sends no e-mail."
  type        = string
  default     = ""
}

variable "budget" {
  description = "US dollars a month of the project, for notices; 0 makes no budget."
  type        = number
  default     = 0
}

variable "billing_account" {
  description = "The billing account's id, which a budget needs. Example: 012345-567890-ABCDEF"
  type        = string
  default     = ""
}
