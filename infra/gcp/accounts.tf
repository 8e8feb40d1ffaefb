# One account for each function, one for all workers that answer prompts, one for those that
# train, and one that calls the functions.
# None has a key.
resource "google_service_account" "program" {
  for_each     = local.rights
  account_id   = "${local.name}-${each.key}"
  display_name = "rollout: ${each.key} of ${local.name}"
}

locals {
  own_push_account = var.settings.push_account == "${local.name}-push@${local.project}.iam.gserviceaccount.com"
  push_account     = local.own_push_account ? google_service_account.push[0].email : var.settings.push_account
  push_account_id  = local.own_push_account ? google_service_account.push[0].name : local.other_push_account
  # The name of an account that exists already.
  other_push_account = "projects/${local.project}/serviceAccounts/${var.settings.push_account}"
  pubsub_agent       = "serviceAccount:service-${local.number}@gcp-sa-pubsub.iam.gserviceaccount.com"
}

# The account of the identity tokens with which Pub/Sub and Cloud Scheduler call.
resource "google_service_account" "push" {
  count        = local.own_push_account ? 1 : 0
  account_id   = "${local.name}-push"
  display_name = "rollout: calls the functions of ${local.name}"
}

# Without this grant, pushes come without a token in projects made before April 2021, and
# every one is refused.
resource "google_service_account_iam_member" "push_tokens" {
  service_account_id = local.push_account_id
  role               = "roles/iam.serviceAccountTokenCreator"
  member             = local.pubsub_agent
}

# Roles of few permissions. Google's own roles would allow more, such as to replace objects.
resource "google_project_iam_custom_role" "role" {
  for_each = {
    objects_read   = { title = "read objects", permissions = ["storage.objects.get"] }
    objects_list   = { title = "list objects", permissions = ["storage.objects.list"] }
    objects_create = { title = "create objects", permissions = ["storage.objects.create"] }
    objects_remove = { title = "remove objects", permissions = ["storage.objects.delete"] }
    bucket_see     = { title = "see whether the bucket keeps versions", permissions = ["storage.buckets.get"] }
    documents_read = {
      title       = "read documents"
      permissions = ["datastore.entities.get", "datastore.entities.list"]
    }
    documents_write = {
      title       = "write documents"
      permissions = ["datastore.entities.create", "datastore.entities.update"]
    }
    documents_remove = { title = "remove documents", permissions = ["datastore.entities.delete"] }
    receive          = { title = "receive messages", permissions = ["pubsub.subscriptions.consume"] }
    call             = { title = "call functions", permissions = ["run.routes.invoke"] }
    tasks = {
      title = "start, count and end tasks of a job"
      permissions = ["run.jobs.run", "run.jobs.runWithOverrides", "run.executions.list",
      "run.executions.cancel"]
    }
    machines = {
      title       = "start machines of groups, and end those that ask for it"
      permissions = ["compute.instanceGroupManagers.get", "compute.instanceGroupManagers.update"]
    }
  }
  role_id     = "${local.role_prefix}_${each.key}"
  title       = "rollout (${local.name}): ${each.value.title}"
  permissions = each.value.permissions
}

locals {
  # A grant of objects: the account, the role, and the prefixes of the keys.
  object_grants = merge([for who, r in local.rights : { for verb, keys in {
    read   = r.reads
    create = r.creates
    remove = r.removes
  } : "${who}-${verb}" => { who = who, role = "objects_${verb}", keys = keys } if length(keys) > 0 }]...)
  # A grant of the whole bucket.
  bucket_grants = merge([for who, r in local.rights : { for verb, needed in {
    objects_list = length(r.reads) > 0
    bucket_see   = length(r.creates) > 0
  } : "${who}-${verb}" => { who = who, role = verb } if needed }]...)
  document_grants = merge([for who, r in local.rights : {
    for verb in r.documents : "${who}-${verb}" => { who = who, role = "documents_${verb}" }
  }]...)
  publish_grants = merge([for who, r in local.rights : {
    for q in r.publishes : "${who}-${q}" => { who = who, topic = q }
  }]...)
  # A grant of a queue to those who receive from it.
  receive_grants = merge([for who, queues in local.machine_accounts : {
    for q in queues : q => who
  }]...)
  secret_grants = merge([for who, r in local.rights : {
    for s in r.secrets : "${who}-${s}" => { who = who, secret = s }
  }]...)

  # Clients of the API may delete the files of a run, and nothing else of it.
  removes_of_runs = { "api-remove" = ["completions.jsonl", "errors.jsonl"] }

  # The beginning of the names of objects in conditions.
  objects     = "projects/_/buckets/${var.settings.bucket}/objects/${var.settings.prefix}"
  of_database = "resource.name == \"projects/${local.project}/databases/${var.settings.database}\""
}

resource "google_storage_bucket_iam_member" "objects" {
  for_each = local.object_grants
  bucket   = local.bucket
  role     = google_project_iam_custom_role.role[each.value.role].name
  member   = google_service_account.program[each.value.who].member
  condition {
    title = "${local.name}-${each.key}"
    expression = join(" || ", concat(
      [for k in each.value.keys : "resource.name.startsWith(\"${local.objects}${k}\")"],
      [for file in lookup(local.removes_of_runs, each.key, []) :
        "resource.name.startsWith(\"${local.objects}${local.runs}\") && resource.name.endsWith(\"/${file}\")"
      ],
    ))
  }
}

resource "google_storage_bucket_iam_member" "bucket" {
  for_each = local.bucket_grants
  bucket   = local.bucket
  role     = google_project_iam_custom_role.role[each.value.role].name
  member   = google_service_account.program[each.value.who].member
}

# Models of pools that lie in buckets. Machines list them as well, to know the files of a
# folder.
locals {
  model_grants = { for pool in local.group_pools : pool => var.settings.pools[pool]
  if var.settings.pools[pool].model_bucket != "" }
  model_objects = { for pool, p in local.model_grants :
    pool => "projects/_/buckets/${p.model_bucket}/objects/${p.model_folder}"
  }
  model_buckets = toset([for p in local.model_grants : p.model_bucket])
}

resource "google_storage_bucket_iam_member" "model" {
  for_each = local.model_grants
  bucket   = each.value.model_bucket
  role     = google_project_iam_custom_role.role["objects_read"].name
  member   = google_service_account.program["worker"].member
  condition {
    title = "${local.name}-model-${each.key}"
    expression = join(" || ", [
      "resource.name.startsWith(\"${local.model_objects[each.key]}/\")",
      "resource.name == \"${local.model_objects[each.key]}\"",
    ])
  }
}

resource "google_storage_bucket_iam_member" "model_list" {
  for_each = local.model_buckets
  bucket   = each.key
  role     = google_project_iam_custom_role.role["objects_list"].name
  member   = google_service_account.program["worker"].member
}

# Documents have no policies of their own: the condition names the database.
resource "google_project_iam_member" "documents" {
  for_each = local.document_grants
  project  = local.project
  role     = google_project_iam_custom_role.role[each.value.role].name
  member   = google_service_account.program[each.value.who].member
  condition {
    title      = "${local.name}-database"
    expression = local.of_database
  }
}

# Groups have no policies of their own either. Machines have no grant of Compute Engine: they
# ask the function leave.
resource "google_project_iam_member" "machines" {
  for_each = length(local.groups) > 0 ? local.scalers : toset([])
  project  = local.project
  role     = google_project_iam_custom_role.role["machines"].name
  member   = google_service_account.program[each.key].member
}

resource "google_pubsub_topic_iam_member" "publish" {
  for_each = local.publish_grants
  topic    = google_pubsub_topic.topic[each.value.topic].id
  role     = "roles/pubsub.publisher"
  member   = google_service_account.program[each.value.who].member
}

resource "google_pubsub_subscription_iam_member" "receive" {
  for_each     = local.receive_grants
  subscription = google_pubsub_subscription.pull[each.key].id
  role         = google_project_iam_custom_role.role["receive"].name
  member       = google_service_account.program[each.value].member
}

resource "google_secret_manager_secret_iam_member" "read" {
  for_each  = local.secret_grants
  secret_id = google_secret_manager_secret.secret[each.value.secret].id
  role      = "roles/secretmanager.secretAccessor"
  member    = google_service_account.program[each.value.who].member
}
