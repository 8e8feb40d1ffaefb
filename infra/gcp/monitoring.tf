resource "google_monitoring_notification_channel" "email" {
  count        = var.email == "" ? 0 : 1
  display_name = "rollout (${local.name})"
  type         = "email"
  labels       = { email_address = var.email }
}

locals {
  channels = google_monitoring_notification_channel.email[*].name
  undelivered = join(" AND ", [
    "metric.type = \"pubsub.googleapis.com/subscription/num_undelivered_messages\"",
    "resource.type = \"pubsub_subscription\"",
  ])
  dead_letter_names = "monitoring.regex.full_match(\"${var.settings.topics}.*-dead\")"
  # Charts of the dashboard: a metric, its resource and label, and how it is counted.
  charts = {
    "Waiting messages" = {
      metric = "pubsub.googleapis.com/subscription/num_undelivered_messages", resource = "pubsub_subscription"
      label  = "subscription_id", per = "ALIGN_MAX", prefix = var.settings.topics
    }
    "Requests of functions, a second" = {
      metric = "run.googleapis.com/request_count", resource = "cloud_run_revision"
      label  = "service_name", per = "ALIGN_RATE", prefix = "${local.name}-"
    }
    "Machines" = {
      metric = "compute.googleapis.com/instance_group/size", resource = "instance_group"
      label  = "instance_group_name", per = "ALIGN_MEAN", prefix = "${local.name}-"
    }
  }
}

# One policy for all dead letters: alerts cost by condition.
resource "google_monitoring_alert_policy" "dead_letters" {
  display_name          = "rollout (${local.name}): dead letters"
  combiner              = "OR"
  notification_channels = local.channels
  conditions {
    display_name = "a message could not be handled"
    condition_threshold {
      filter          = "${local.undelivered} AND resource.label.subscription_id = ${local.dead_letter_names}"
      comparison      = "COMPARISON_GT"
      threshold_value = 0
      duration        = "0s"
      aggregations {
        alignment_period   = "300s"
        per_series_aligner = "ALIGN_MAX"
      }
    }
  }
  documentation {
    mime_type = "text/markdown"
    content   = "Nothing can be done with these messages. See the README of infra/gcp, Troubles."
  }
}

# Pub/Sub sends no e-mails. The function reclaim logs each event once its topic has it.
resource "google_monitoring_alert_policy" "events" {
  count                 = var.email == "" ? 0 : 1
  display_name          = "rollout (${local.name}): runs and machines"
  combiner              = "OR"
  notification_channels = local.channels
  conditions {
    display_name = "something happened to a run or a pool"
    condition_matched_log {
      filter = join(" AND ", [
        "resource.type = \"cloud_run_revision\"",
        "resource.labels.service_name = \"${local.name}-reclaim\"",
        "jsonPayload.msg = \"an event is told\"",
      ])
      label_extractors = {
        type   = "EXTRACT(jsonPayload.event.type)"
        about  = "EXTRACT(jsonPayload.event.subject)"
        name   = "EXTRACT(jsonPayload.event.data.name)"
        reason = "EXTRACT(jsonPayload.event.data.reason)"
      }
    }
  }
  alert_strategy {
    auto_close = "1800s"
    notification_rate_limit {
      period = "300s"
    }
  }
  documentation {
    mime_type = "text/markdown"
    content = join(" ", [
      "$${log.extracted_label.type} of $${log.extracted_label.name} $${log.extracted_label.about}:",
      "$${log.extracted_label.reason}",
    ])
  }
}

resource "google_monitoring_dashboard" "this" {
  dashboard_json = jsonencode({
    displayName = "rollout (${local.name})"
    gridLayout = {
      columns = "2"
      widgets = [for title, c in local.charts : {
        title = title
        xyChart = {
          dataSets = [{
            plotType = "LINE"
            timeSeriesQuery = {
              timeSeriesFilter = {
                filter = join(" AND ", [
                  "metric.type = \"${c.metric}\"",
                  "resource.type = \"${c.resource}\"",
                  "resource.label.${c.label} = starts_with(\"${c.prefix}\")",
                ])
                aggregation = {
                  alignmentPeriod    = "60s"
                  perSeriesAligner   = c.per
                  crossSeriesReducer = "REDUCE_SUM"
                  groupByFields      = ["resource.label.${c.label}"]
                }
              }
            }
          }]
        }
      }]
    }
  })
}

resource "google_billing_budget" "project" {
  count           = var.budget > 0 ? 1 : 0
  billing_account = var.billing_account
  display_name    = "rollout (${local.name})"
  budget_filter {
    projects = ["projects/${local.number}"]
  }
  amount {
    specified_amount {
      currency_code = "USD"
      units         = tostring(var.budget)
    }
  }
  threshold_rules {
    threshold_percent = 0.8
  }
  threshold_rules {
    threshold_percent = 1.0
    spend_basis       = "FORECASTED_SPEND"
  }
  all_updates_rule {
    monitoring_notification_channels = local.channels
    disable_default_iam_recipients   = false
  }

  lifecycle {
    precondition {
      condition     = can(regex("^[0-9A-F]{6}-[0-9A-F]{6}-[0-9A-F]{6}$", var.billing_account))
      error_message = "A budget needs the billing account: take one of `gcloud billing accounts list`."
    }
  }
}
