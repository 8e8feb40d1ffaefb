# What people may do, as the command line needs it.
locals {
  viewers   = toset(concat(var.viewers, var.operators))
  operators = toset(var.operators)

  # Snapshots are looked at and restored.
  seen = concat([local.prompts, local.work, local.runs, local.owner, local.models], local.trains ? [local.content] : [])
  viewed = [for k in local.seen :
    "resource.name.startsWith(\"${local.objects}${k}\")"
  ]
  commands = merge([for who in var.operators : {
    for q in ["submit", "coordinate"] : "${who} ${q}" => { who = who, topic = q }
  }]...)
}

resource "google_storage_bucket_iam_member" "viewer_objects" {
  for_each = local.viewers
  bucket   = local.bucket
  role     = google_project_iam_custom_role.role["objects_read"].name
  member   = each.key
  condition {
    title      = "${local.name}-viewer"
    expression = join(" || ", local.viewed)
  }
}

resource "google_storage_bucket_iam_member" "viewer_list" {
  for_each = local.viewers
  bucket   = local.bucket
  role     = google_project_iam_custom_role.role["objects_list"].name
  member   = each.key
}

resource "google_project_iam_member" "viewer_documents" {
  for_each = local.viewers
  project  = local.project
  role     = google_project_iam_custom_role.role["documents_read"].name
  member   = each.key
  condition {
    title      = "${local.name}-database"
    expression = local.of_database
  }
}

# Operators upload prompts and copies of models, and may replace none.
resource "google_storage_bucket_iam_member" "operator_prompts" {
  for_each = local.operators
  bucket   = local.bucket
  role     = google_project_iam_custom_role.role["objects_create"].name
  member   = each.key
  condition {
    title = "${local.name}-operator"
    expression = join(" || ", [
      for k in [local.prompts, local.models] : "resource.name.startsWith(\"${local.objects}${k}\")"
    ])
  }
}

resource "google_storage_bucket_iam_member" "operator_versions" {
  for_each = local.operators
  bucket   = local.bucket
  role     = google_project_iam_custom_role.role["bucket_see"].name
  member   = each.key
}

resource "google_project_iam_member" "operator_documents" {
  for_each = local.operators
  project  = local.project
  role     = google_project_iam_custom_role.role["documents_write"].name
  member   = each.key
  condition {
    title      = "${local.name}-database"
    expression = local.of_database
  }
}

# Operators prune snapshots.
resource "google_project_iam_member" "operator_prunes" {
  for_each = local.trains ? local.operators : toset([])
  project  = local.project
  role     = google_project_iam_custom_role.role["documents_remove"].name
  member   = each.key
  condition {
    title      = "${local.name}-database"
    expression = local.of_database
  }
}

resource "google_storage_bucket_iam_member" "operator_prunes" {
  for_each = local.trains ? local.operators : toset([])
  bucket   = local.bucket
  role     = google_project_iam_custom_role.role["objects_remove"].name
  member   = each.key
  condition {
    title      = "${local.name}-snapshots"
    expression = "resource.name.startsWith(\"${local.objects}${local.content}\")"
  }
}

resource "google_pubsub_topic_iam_member" "operator_commands" {
  for_each = local.commands
  topic    = google_pubsub_topic.topic[each.value.topic].id
  role     = "roles/pubsub.publisher"
  member   = each.value.who
}

resource "google_cloud_run_v2_service_iam_member" "operator_api" {
  for_each = local.operators
  name     = google_cloud_run_v2_service.function["api"].name
  location = local.region
  role     = google_project_iam_custom_role.role["call"].name
  member   = each.key
}
