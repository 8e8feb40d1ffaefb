# A key of the user's for all that is stored: objects, documents, messages, secrets, disks, and
# the copies of images that Cloud Run keeps. Without one Google's own keys encrypt it.
#
#   key ◀──use── the agent of each service, for its own resources
#
# Programs and people have no right on the key: services decrypt for those who may read.

locals {
  kms_keys = var.kms_key == "" ? [] : [var.kms_key] # for dynamic blocks
  kms_key  = var.kms_key == "" ? null : var.kms_key
  key_name = "keyRings/[^/]+/cryptoKeys/[^/]+" # services take keys of their own region alone

  # The accounts of Google's services that store something here.
  kms_agents = { for service, agent in {
    storage   = data.google_storage_project_service_account.agent.member
    pubsub    = local.pubsub_agent
    run       = "serviceAccount:service-${local.number}@serverless-robot-prod.iam.gserviceaccount.com"
    firestore = "serviceAccount:service-${local.number}@gcp-sa-firestore.iam.gserviceaccount.com"
    secrets   = "serviceAccount:service-${local.number}@gcp-sa-secretmanager.iam.gserviceaccount.com"
    compute   = "serviceAccount:service-${local.number}@compute-system.iam.gserviceaccount.com"
    } : service => agent if lookup({
      storage   = var.bucket == "made" || var.gpu
      firestore = var.database == "made"
      secrets   = length(var.settings.secrets) > 0
      compute   = length(local.groups) > 0
  }, service, true) }
}

# A service refuses to store anything under a key that its agent may not use.
resource "google_kms_crypto_key_iam_member" "agent" {
  for_each      = var.kms_key == "" ? {} : local.kms_agents
  crypto_key_id = var.kms_key
  role          = "roles/cloudkms.cryptoKeyEncrypterDecrypter"
  member        = each.value

  lifecycle {
    precondition {
      condition     = can(regex("^projects/[^/]+/locations/${local.region}/${local.key_name}$", var.kms_key))
      error_message = "Name a key of ${local.region}, as projects/P/locations/${local.region}/keyRings/R/cryptoKeys/K."
    }
  }
}
