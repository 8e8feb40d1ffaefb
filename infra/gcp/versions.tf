# rollout on Google Cloud. README.md says how to deploy it.
#
# The syntax is that of Terraform 1.5, which Infrastructure Manager runs. There is no
# backend: add one in a file of your own, such as backend.tf.
terraform {
  required_version = ">= 1.5"
  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 6.50"
    }
  }
}

provider "google" {
  project        = var.settings.project
  region         = var.settings.region
  default_labels = { installation = var.settings.name }

  # A budget belongs to the billing account. With a person's credentials its API must be
  # told which project pays for the request.
  billing_project       = var.settings.project
  user_project_override = var.budget > 0
}
