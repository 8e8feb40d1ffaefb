# The functions: services of Cloud Run from one image, in which FUNCTION_TARGET names the
# function.
resource "google_cloud_run_v2_service" "function" {
  for_each            = local.functions
  name                = "${local.name}-${each.key}"
  location            = local.region
  deletion_protection = false

  # Pub/Sub and Cloud Scheduler of the project are internal callers. Machines with external
  # addresses are not.
  ingress = contains(["api", "leave"], each.key) ? "INGRESS_TRAFFIC_ALL" : "INGRESS_TRAFFIC_INTERNAL_ONLY"

  custom_audiences = each.key == "leave" ? [local.leave_audience] : null

  # With the secret api-token, the API asks every caller for that token itself.
  invoker_iam_disabled = each.key == "api" && local.open_api

  template {
    service_account                  = google_service_account.program[each.key].email
    timeout                          = "600s"
    max_instance_request_concurrency = each.value.concurrency
    encryption_key                   = local.kms_key

    scaling {
      min_instance_count = 0
      max_instance_count = each.value.instances
    }

    containers {
      image   = var.image
      command = ["/functions"]
      resources {
        limits   = { cpu = "1", memory = each.value.memory }
        cpu_idle = true # billed during requests only
      }
      env {
        name  = "FUNCTION_TARGET"
        value = each.key
      }
      env {
        name  = "ROLLOUT_CONFIG"
        value = var.settings.config
      }
    }
  }

  # A function reads its documents and objects from its first request on.
  depends_on = [
    google_project_iam_member.documents,
    google_storage_bucket_iam_member.objects,
    google_storage_bucket_iam_member.bucket,
    google_secret_manager_secret_iam_member.read,
    google_kms_crypto_key_iam_member.agent,
  ]
}

resource "google_cloud_run_v2_service_iam_member" "push" {
  for_each = { for name, f in local.functions : name => f if !contains(["api", "leave"], name) }
  name     = google_cloud_run_v2_service.function[each.key].name
  location = local.region
  role     = google_project_iam_custom_role.role["call"].name
  member   = "serviceAccount:${local.push_account}"
}

# A machine leaves its group by asking the function leave, which takes no other callers.
resource "google_cloud_run_v2_service_iam_member" "leave" {
  for_each = toset(keys(local.machine_accounts))
  name     = google_cloud_run_v2_service.function["leave"].name
  location = local.region
  role     = google_project_iam_custom_role.role["call"].name
  member   = google_service_account.program[each.key].member
}

# Cloud Storage publishes with its own account. Without the grant, making the notification
# fails.
data "google_storage_project_service_account" "agent" {
  project = local.project
}

resource "google_pubsub_topic_iam_member" "notify" {
  topic  = google_pubsub_topic.topic["objects"].id
  role   = "roles/pubsub.publisher"
  member = data.google_storage_project_service_account.agent.member
}

# The prefix keeps the results of shards from calling a function each.
resource "google_storage_notification" "prompts" {
  bucket             = local.bucket
  topic              = google_pubsub_topic.topic["objects"].id
  payload_format     = "JSON_API_V1"
  event_types        = ["OBJECT_FINALIZE"]
  object_name_prefix = "${var.settings.prefix}${local.prompts}"

  depends_on = [google_pubsub_topic_iam_member.notify]
}

# reclaim looks once a minute for what was lost. A failed call is not repeated: the next one
# comes within a minute.
resource "google_cloud_scheduler_job" "reclaim" {
  name             = "${local.name}-reclaim"
  region           = local.region
  schedule         = "* * * * *"
  time_zone        = "Etc/UTC"
  attempt_deadline = "600s"
  retry_config {
    retry_count = 0
  }
  http_target {
    http_method = "POST"
    uri         = google_cloud_run_v2_service.function["reclaim"].uri
    oidc_token {
      service_account_email = local.push_account
      audience              = google_cloud_run_v2_service.function["reclaim"].uri
    }
  }
}

# System events of the audit log say which machines Google took back. They are free.
resource "google_logging_project_sink" "machines" {
  name                   = "${local.name}-machines"
  destination            = "pubsub.googleapis.com/${google_pubsub_topic.topic["machines"].id}"
  unique_writer_identity = true
  filter = join(" AND ", [
    "logName=\"projects/${local.project}/logs/cloudaudit.googleapis.com%2Fsystem_event\"",
    "resource.type=\"gce_instance\"",
    "protoPayload.methodName=(${join(" OR ", [for m in local.machine_events : "\"${m}\""])})",
  ])
}

locals {
  # As functions/gcp/internal/cloudrun/notices.go knows them.
  machine_events = [
    "compute.instances.preempted",
    "compute.instances.hostError",
    "compute.instances.guestTerminate",
    "compute.instances.terminateOnHostMaintenance",
    "compute.instances.repair.recreateInstance",
  ]
}

resource "google_pubsub_topic_iam_member" "audit" {
  topic  = google_pubsub_topic.topic["machines"].id
  role   = "roles/pubsub.publisher"
  member = google_logging_project_sink.machines.writer_identity
}
