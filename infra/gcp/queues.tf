# Topics and subscriptions have the same names, which shared/gcp/function_queues.go and
# shared/host give them.
#
#   topic ──▶ subscription ──push──▶ function      (push)
#                          ──pull──▶ worker        (pull)
#                          ──dead letters──▶ topic-dead
#   events ──▶ subscriptions that people make  (what is told of runs and machines)

locals {
  # The function that each topic is pushed to.
  pushes = {
    objects    = "submit" # the bucket's notifications
    submit     = "submit"
    plan       = "plan"
    coordinate = "coordinate"
    finalize   = "finalize"
    machines   = "interrupt" # the audit log's entries about machines
  }
  dead_letters = toset(concat(["tasks-dead", "coordinate-dead"], [for q in local.pull_queues : "${q}-dead"]))
  # Topics that are pulled, with the topic of their dead letters.
  pulls = merge({ for q in local.pull_queues : q => "${q}-dead" }, { doctor = "tasks-dead" })

  ack_seconds  = 30         # of pulled messages: the time that workers ask for
  push_seconds = 600        # the most that Pub/Sub waits; functions hand back after 540 s
  kept         = "1209600s" # 14 days: the messages of a paused run must survive
  attempts     = 16         # deliveries before a message is a dead letter
  # The topic of the events that people are told, which reclaim publishes. It has no
  # subscription: people make those that they want. Without one a message is gone at once.
  events = "events"
}

resource "google_pubsub_topic" "topic" {
  for_each     = toset(concat(keys(local.pushes), keys(local.pulls), tolist(local.dead_letters), [local.events]))
  name         = "${var.settings.topics}${each.key}"
  kms_key_name = local.kms_key
  message_storage_policy {
    allowed_persistence_regions = [local.region]
  }

  depends_on = [google_kms_crypto_key_iam_member.agent]
}

resource "google_pubsub_subscription" "push" {
  for_each                   = local.pushes
  name                       = "${var.settings.topics}${each.key}"
  topic                      = google_pubsub_topic.topic[each.key].id
  ack_deadline_seconds       = local.push_seconds
  message_retention_duration = local.kept

  push_config {
    push_endpoint = google_cloud_run_v2_service.function[each.value].uri
    oidc_token {
      service_account_email = local.push_account
      audience              = google_cloud_run_v2_service.function[each.value].uri
    }
  }

  retry_policy {
    minimum_backoff = "10s"
    maximum_backoff = "600s"
  }

  dead_letter_policy {
    dead_letter_topic     = google_pubsub_topic.topic[each.key == "coordinate" ? "coordinate-dead" : "tasks-dead"].id
    max_delivery_attempts = local.attempts
  }

  # Otherwise Pub/Sub deletes a subscription that was idle for 31 days.
  expiration_policy {
    ttl = ""
  }
}

resource "google_pubsub_subscription" "pull" {
  for_each                   = local.pulls
  name                       = "${var.settings.topics}${each.key}"
  topic                      = google_pubsub_topic.topic[each.key].id
  ack_deadline_seconds       = local.ack_seconds
  message_retention_duration = each.key == "doctor" ? "600s" : local.kept

  dead_letter_policy {
    dead_letter_topic     = google_pubsub_topic.topic[each.value].id
    max_delivery_attempts = local.attempts
  }

  expiration_policy {
    ttl = ""
  }
}

# A topic of dead letters without a subscription would lose them.
resource "google_pubsub_subscription" "dead" {
  for_each                   = local.dead_letters
  name                       = "${var.settings.topics}${each.key}"
  topic                      = google_pubsub_topic.topic[each.key].id
  ack_deadline_seconds       = local.ack_seconds
  message_retention_duration = local.kept
  expiration_policy {
    ttl = ""
  }
}

# Pub/Sub moves dead letters with its own account. Without these grants nothing fails, and
# no message ever becomes a dead letter.
resource "google_pubsub_topic_iam_member" "bury" {
  for_each = local.dead_letters
  topic    = google_pubsub_topic.topic[each.key].id
  role     = "roles/pubsub.publisher"
  member   = local.pubsub_agent
}

resource "google_pubsub_subscription_iam_member" "forward_pushed" {
  for_each     = local.pushes
  subscription = google_pubsub_subscription.push[each.key].id
  role         = "roles/pubsub.subscriber"
  member       = local.pubsub_agent
}

resource "google_pubsub_subscription_iam_member" "forward_pulled" {
  for_each     = local.pulls
  subscription = google_pubsub_subscription.pull[each.key].id
  role         = "roles/pubsub.subscriber"
  member       = local.pubsub_agent
}
