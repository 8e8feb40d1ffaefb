# What a later deployment finds again: the bucket and the database. Everything else can be
# destroyed and made again.

locals {
  bucket   = var.bucket == "made" ? google_storage_bucket.data[0].name : var.settings.bucket
  database = var.database == "made" ? google_firestore_database.data[0].name : var.settings.database

  # Days after which lifecycle rules delete objects, as on AWS.
  work_days    = 90 # checkpoints and shard results; a longer run loses them
  pending_days = 7
  upload_days  = 7  # parts of incomplete uploads
  old_days     = 30 # replaced versions; a run reads the version it began with
}

# Destroying a bucket that has objects fails, which keeps them. README.md says how to leave
# it out of a destroy.
resource "google_storage_bucket" "data" {
  count                       = var.bucket == "made" ? 1 : 0
  name                        = var.settings.bucket
  location                    = local.region
  force_destroy               = false
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"

  # A run reads the version of its input that it began with.
  versioning {
    enabled = true
  }

  # Versions are kept already. Soft delete would bill each deleted version for 7 days more.
  soft_delete_policy {
    retention_duration_seconds = 0
  }

  dynamic "encryption" {
    for_each = local.kms_keys
    content {
      default_kms_key_name = encryption.value
    }
  }

  dynamic "lifecycle_rule" {
    for_each = {
      (local.work)    = local.work_days
      (local.pending) = local.pending_days
    }
    content {
      action {
        type = "Delete"
      }
      condition {
        age            = lifecycle_rule.value
        matches_prefix = ["${var.settings.prefix}${lifecycle_rule.key}"]
        with_state     = "LIVE"
      }
    }
  }

  dynamic "lifecycle_rule" {
    for_each = {
      (local.work)    = 1
      (local.pending) = 1
      ""              = local.old_days
    }
    content {
      action {
        type = "Delete"
      }
      condition {
        days_since_noncurrent_time = lifecycle_rule.value
        matches_prefix             = lifecycle_rule.key == "" ? null : ["${var.settings.prefix}${lifecycle_rule.key}"]
        with_state                 = "ARCHIVED"
      }
    }
  }

  lifecycle_rule {
    action {
      type = "AbortIncompleteMultipartUpload"
    }
    condition {
      age = local.upload_days
    }
  }

  depends_on = [google_kms_crypto_key_iam_member.agent]
}

resource "google_firestore_database" "data" {
  count                             = var.database == "made" ? 1 : 0
  name                              = var.settings.database
  location_id                       = local.region
  type                              = "FIRESTORE_NATIVE"
  point_in_time_recovery_enablement = "POINT_IN_TIME_RECOVERY_ENABLED"
  delete_protection_state           = "DELETE_PROTECTION_ENABLED"
  deletion_policy                   = "ABANDON" # destroy leaves it

  dynamic "cmek_config" {
    for_each = local.kms_keys
    content {
      kms_key_name = cmek_config.value
    }
  }

  depends_on = [google_kms_crypto_key_iam_member.agent]
}

# Documents are found by their names. Indexes of their fields would double the cost of each
# write, and refuse values of more than 1,500 bytes.
resource "google_firestore_field" "unindexed" {
  database   = local.database
  collection = "rollout"
  field      = "*"
  index_config {}
}

# Secrets without a value: `gcloud secrets versions add` gives them one. They stay in the
# region, which policies about resource locations ask for.
resource "google_secret_manager_secret" "secret" {
  for_each  = toset(var.settings.secrets)
  secret_id = "${var.settings.secret_prefix}${each.key}"
  replication {
    user_managed {
      replicas {
        location = local.region
        dynamic "customer_managed_encryption" {
          for_each = local.kms_keys
          content {
            kms_key_name = customer_managed_encryption.value
          }
        }
      }
    }
  }

  depends_on = [google_kms_crypto_key_iam_member.agent]
}

# Programs of machines and of Cloud Run jobs: the worker, and the scripts that start it.
resource "google_storage_bucket" "programs" {
  count                       = var.gpu ? 1 : 0
  name                        = "${var.settings.bucket}-programs"
  location                    = local.region
  force_destroy               = true
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  versioning {
    enabled = false
  }
  soft_delete_policy {
    retention_duration_seconds = 0
  }
  dynamic "encryption" {
    for_each = local.kms_keys
    content {
      default_kms_key_name = encryption.value
    }
  }

  depends_on = [google_kms_crypto_key_iam_member.agent]
}

locals {
  # The name has the content's digest, so that a new program makes a new template of
  # machines.
  worker_object = var.gpu ? "gpuworker-${substr(filesha256(var.worker), 0, 16)}" : ""
}

resource "google_storage_bucket_object" "worker" {
  count  = var.gpu ? 1 : 0
  bucket = google_storage_bucket.programs[0].name
  name   = local.worker_object
  source = var.worker
}

resource "google_storage_bucket_object" "job_script" {
  count   = var.gpu ? 1 : 0
  bucket  = google_storage_bucket.programs[0].name
  name    = "cloud-run.sh"
  content = file("${path.module}/cloud-run.sh")
}

resource "google_storage_bucket_iam_member" "programs" {
  for_each = merge([for who in keys(local.machine_accounts) : {
    for role in ["objects_read", "objects_list"] : "${who}-${role}" => { who = who, role = role } if var.gpu
  }]...)
  bucket = google_storage_bucket.programs[0].name
  role   = google_project_iam_custom_role.role[each.value.role].name
  member = google_service_account.program[each.value.who].member
}
