data "google_project" "this" {
  project_id = var.settings.project
}

locals {
  name    = var.settings.name
  project = var.settings.project
  region  = var.settings.region
  number  = data.google_project.this.number

  # Custom roles have no dash in their ids.
  role_prefix = replace(var.settings.name, "-", "_")

  # Folders of the bucket, as shared/record names them.
  prompts = "prompts/"
  work    = "work/"
  runs    = "runs/"
  pending = "pending/"
  files   = "files/"
  parts   = "pending/parts/"
  content = "cas/"
  models  = "models/"
  owner   = "rollout-installation.json"
  # Objects that a program makes on the way to others, and removes again.
  scratch = ["pending/.rollout-", "pending/clock-"]

  token_secret = "api-token"
  open_api     = contains(var.settings.secrets, local.token_secret)
  notifies     = var.settings.notify_secret != ""

  # The queues of pools that answer prompts, of the one that trains, and of both.
  answer_queues = flatten([for pool, p in var.settings.pools : ["work-${pool}", "urgent-${pool}"] if !p.trains])
  train_queues  = flatten([for pool, p in var.settings.pools : ["work-${pool}", "urgent-${pool}"] if p.trains])
  pull_queues   = toset(concat(local.answer_queues, local.train_queues))
  trains        = length(local.train_queues) > 0

  # What each function may do. Objects are those below the prefixes, documents those of the
  # database. reads includes listing the bucket: without it an absent object looks like a
  # forbidden one.
  functions = {
    submit = {
      memory      = "512Mi"
      concurrency = 20
      instances   = 5
      reads       = [local.prompts, local.files, local.work, local.runs, local.owner]
      creates     = [local.runs, local.owner]
      removes     = []
      documents   = ["read", "write"]
      publishes   = ["plan", "tasks-dead"]
      secrets     = []
    }
    plan = {
      memory      = "2Gi"
      concurrency = 2
      instances   = 20
      reads       = [local.prompts, local.files, local.work, local.runs, local.pending]
      creates     = [local.work, local.pending]
      removes     = local.scratch
      documents   = ["read", "write"]
      publishes   = ["plan", "coordinate", "tasks-dead"]
      secrets     = []
    }
    coordinate = {
      # One instance: pushes that come fast after one another are one step of each run.
      memory      = "1Gi"
      concurrency = 1000
      instances   = 1
      reads       = [local.work, local.runs, local.pending]
      creates     = [local.work, local.pending]
      removes     = local.scratch
      documents   = ["read", "write"]
      publishes   = concat(["plan", "finalize", "coordinate-dead"], tolist(local.pull_queues))
      secrets     = []
    }
    finalize = {
      memory      = "2Gi"
      concurrency = 2
      instances   = 20
      reads       = [local.prompts, local.files, local.work, local.runs, local.pending]
      creates     = [local.work, local.runs, local.pending]
      removes     = local.scratch
      documents   = ["read"]
      publishes   = ["finalize", "coordinate", "tasks-dead"]
      secrets     = []
    }
    reclaim = {
      memory      = "512Mi"
      concurrency = 2
      instances   = 1
      # It tells people of runs that have ended, by their summaries. With a webhook it signs
      # the events. It removes what uploads to the API have left behind.
      reads     = [local.prompts, local.files, local.parts, local.work, local.runs, local.owner]
      creates   = []
      removes   = [local.files, local.parts]
      documents = ["read", "write", "remove"]
      publishes = ["coordinate", "submit", "plan", local.events]
      secrets   = local.notifies ? [var.settings.notify_secret] : []
    }
    interrupt = {
      memory      = "512Mi"
      concurrency = 20
      instances   = 2
      reads       = []
      creates     = []
      removes     = []
      documents   = ["read", "write"]
      publishes   = []
      secrets     = []
    }
    api = {
      # It takes files in parts, joins and removes them.
      memory      = "512Mi"
      concurrency = 80
      instances   = 10
      reads       = [local.prompts, local.files, local.work, local.runs, local.pending]
      creates     = [local.files, local.pending]
      removes     = concat([local.files, local.parts], local.scratch)
      documents   = ["read", "write", "remove"]
      publishes   = ["coordinate", "submit"]
      secrets     = local.open_api ? [local.token_secret] : []
    }
    leave = {
      # Machines call it to leave their groups; see shared/gcp/leave.go.
      memory      = "512Mi"
      concurrency = 20
      instances   = 2
      reads       = []
      creates     = []
      removes     = []
      documents   = []
      publishes   = []
      secrets     = []
    }
  }

  # The functions that change the sizes of the groups of machines.
  scalers = toset(["coordinate", "reclaim", "leave"])

  # The audience of the tokens by which machines prove who they are. The function knows it
  # from its config; it does not know its own address.
  leave_audience = "https://${local.name}-leave.${local.project}.internal"

  # What workers may do. They process untrusted prompts, so they get the least. They may
  # create objects and cannot replace them: to replace is to delete, for Cloud Storage. The
  # machines read copies of models, and create one of a model that they had to fetch.
  worker = {
    reads     = [local.prompts, local.files, local.work, local.runs, local.pending, local.models]
    creates   = [local.work, local.pending, local.content, local.models]
    removes   = local.scratch
    documents = ["read", "write"]
    publishes = concat(["coordinate"], [for q in local.answer_queues : "${q}-dead"])
    secrets   = [for s in var.settings.secrets : s if !contains([local.token_secret, var.settings.notify_secret], s)]
  }

  # What the workers of a training pool may do. They keep snapshots: besides what other workers
  # do, they remove the copies from which a snapshot's object was made, and the snapshots that
  # newer ones replace. They ask no server, and read no file of another run.
  trainer = {
    reads     = [local.prompts, local.work, local.pending, local.content]
    creates   = [local.work, local.pending, local.content]
    removes   = [local.pending, local.content]
    documents = ["read", "write", "remove"]
    publishes = concat(["coordinate"], [for q in local.train_queues : "${q}-dead"])
    secrets   = []
  }

  # The accounts of machines, with the queues that they receive from.
  machine_accounts = merge({ worker = local.answer_queues }, local.trains ? { trainer = local.train_queues } : {})

  rights = merge({ for name, f in local.functions : name => {
    reads     = f.reads, creates = f.creates, removes = f.removes
    documents = f.documents, publishes = f.publishes, secrets = f.secrets
  } }, { worker = local.worker }, local.trains ? { trainer = local.trainer } : {})
}
