# A regional group of machines for each pool and series of machine types. Types of one
# series have the same disks, so a group may start any of them, in any zone that has one.
#
# A group is empty until functions raise its size, and Terraform ignores the size from then
# on: a new deployment never ends a working machine.

data "google_compute_zones" "all" {
  region = local.region
}

data "google_compute_machine_types" "zone" {
  for_each = toset(var.gpu ? data.google_compute_zones.all.names : [])
  zone     = each.key
  filter   = join(" OR ", [for t in local.all_types : "(name = \"${t}\")"])
}

locals {
  group_pools = [for name, p in var.settings.pools : name if var.gpu && p.machines == "group"]
  all_types   = distinct(flatten([for pool in local.group_pools : var.settings.pools[pool].instance_types]))
  # For each pool "g2" to its types, in the order of the config. A3 Ultra has other disks than
  # the rest of A3, and a group of its own; functions name the groups likewise.
  series = { for pool in local.group_pools : pool => {
    for t in var.settings.pools[pool].instance_types :
    startswith(t, "a3-ultragpu-") ? "a3ultra" : split("-", t)[0] => t...
  } }
  # A group for each pool and series, with the zones of the region that have a type of it.
  wanted_groups = merge([for pool, series in local.series : { for s, types in series :
    "${pool}-${s}" => { pool = pool, series = s, types = types, zones = [
      for zone, found in data.google_compute_machine_types.zone : zone
      if length(setintersection(types, found.machine_types[*].name)) > 0
    ] }
  }]...)
  absent = distinct([for g in local.wanted_groups : g.series if length(g.zones) == 0])
  groups = { for name, g in local.wanted_groups : name => g if length(g.zones) > 0 }
  # These have no persistent disks.
  disk_types = { for s in ["a3ultra", "g4", "c4", "c4d", "n4", "n4d", "h4d", "m4", "x4"] : s => "hyperdisk-balanced" }

  provisioning = {
    spot       = { model = "SPOT", preemptible = true, seconds = 0 }
    flex-start = { model = "FLEX_START", preemptible = false, seconds = 604800 } # it needs a limit: 7 days
    standard   = { model = "STANDARD", preemptible = false, seconds = 0 }
  }
  # How each group's machines are bought.
  bought = { for group, g in local.groups : group => var.settings.pools[g.pool].provisioning }

  # A training needs the worker program and nothing else.
  training_image = "projects/debian-cloud/global/images/family/debian-12"
  machine_images = { for pool in local.group_pools : pool => (
    var.settings.pools[pool].image != "" ? var.settings.pools[pool].image : (
      var.settings.pools[pool].trains ? local.training_image : var.machine_image
    )
  ) }
  # The account of a pool's machines.
  machine_account = { for pool in local.group_pools : pool => var.settings.pools[pool].trains ? "trainer" : "worker" }

  token_of_hub = contains(var.settings.secrets, "hf-token") ? "${var.settings.secret_prefix}hf-token" : ""
}

# The script that a machine runs at each start, after the settings of its pool.
locals {
  startup_scripts = { for pool in local.group_pools : pool => join("", [
    "#!/usr/bin/env bash\n",
    join("", [for name, value in {
      ROLLOUT_AUDIENCE     = local.leave_audience
      ROLLOUT_CONFIG       = var.settings.config
      ROLLOUT_HUB_SECRET   = local.token_of_hub
      ROLLOUT_MODEL        = var.settings.pools[pool].model
      ROLLOUT_POOL         = pool
      ROLLOUT_PROJECT      = local.project
      ROLLOUT_PROGRAMS     = "${var.settings.bucket}-programs"
      ROLLOUT_READY_WITHIN = var.settings.pools[pool].boot_seconds
      ROLLOUT_WORKER       = local.worker_object
    } : "export ${name}='${replace(value, "'", "'\\''")}'\n"]),
    file("${path.module}/bootstrap.sh"),
  ]) }
}

resource "google_compute_region_instance_template" "machine" {
  for_each     = local.groups
  name_prefix  = "${local.name}-${each.key}-"
  region       = local.region
  machine_type = each.value.types[0]
  labels       = var.settings.pools[each.value.pool].labels

  # The disk holds the image, and where machines have no disks of their own the engine's
  # container image and the model.
  disk {
    boot         = true
    auto_delete  = true
    source_image = local.machine_images[each.value.pool]
    disk_size_gb = var.settings.pools[each.value.pool].disk_gb
    labels       = var.settings.pools[each.value.pool].labels
    disk_type    = lookup(local.disk_types, each.value.series, "pd-balanced")
    dynamic "disk_encryption_key" {
      for_each = local.kms_keys
      content {
        kms_key_self_link = disk_encryption_key.value
      }
    }
  }

  network_interface {
    subnetwork = local.subnetwork
    dynamic "access_config" {
      for_each = var.external_addresses ? [1] : []
      content {}
    }
  }

  scheduling {
    provisioning_model          = local.provisioning[local.bought[each.key]].model
    preemptible                 = local.provisioning[local.bought[each.key]].preemptible
    instance_termination_action = local.bought[each.key] == "standard" ? null : "DELETE"
    automatic_restart           = false
    on_host_maintenance         = "TERMINATE" # a machine with GPUs can't move
    dynamic "max_run_duration" {
      for_each = [for seconds in [local.provisioning[local.bought[each.key]].seconds] : seconds if seconds > 0]
      content {
        seconds = max_run_duration.value
      }
    }
  }

  dynamic "reservation_affinity" {
    for_each = local.bought[each.key] == "flex-start" ? [1] : []
    content {
      type = "NO_RESERVATION"
    }
  }

  service_account {
    email  = google_service_account.program[local.machine_account[each.value.pool]].email
    scopes = ["cloud-platform"] # the account's roles decide
  }

  # Secure Boot would refuse the driver of the default image, which is not signed.
  shielded_instance_config {
    enable_secure_boot          = false
    enable_vtpm                 = true
    enable_integrity_monitoring = true
  }

  metadata = {
    startup-script             = local.startup_scripts[each.value.pool]
    serial-port-logging-enable = "TRUE" # the boot log outlives the machine
    block-project-ssh-keys     = "TRUE"
    rollout-leave              = google_cloud_run_v2_service.function["leave"].uri
  }

  lifecycle {
    create_before_destroy = true
  }

  depends_on = [google_kms_crypto_key_iam_member.agent]
}

resource "google_compute_region_instance_group_manager" "machines" {
  for_each           = local.groups
  name               = "${local.name}-${each.key}"
  region             = local.region
  base_instance_name = "${local.name}-${each.key}"
  target_size        = 0

  # ANY takes whatever zone has machines; a group of one zone would wait there for ever.
  distribution_policy_zones        = each.value.zones
  distribution_policy_target_shape = "ANY"

  version {
    instance_template = google_compute_region_instance_template.machine[each.key].self_link
  }

  instance_flexibility_policy {
    dynamic "instance_selections" {
      for_each = each.value.types
      content {
        name          = instance_selections.value
        machine_types = [instance_selections.value]
        rank          = instance_selections.key
      }
    }
  }

  # New machines get the new template; working ones stay as they are.
  update_policy {
    type                         = "OPPORTUNISTIC"
    minimal_action               = "REPLACE"
    instance_redistribution_type = "NONE" # ANY demands it
    max_surge_fixed              = 0
    max_unavailable_fixed        = length(each.value.zones)
  }

  lifecycle {
    ignore_changes = [target_size]
    precondition {
      condition     = var.settings.pools[each.value.pool].trains || contains(["g2", "g4", "a2", "a3", "a3ultra"], each.value.series)
      error_message = "Use machine types of the series g2, g4, a2 and a3, which bring their GPUs."
    }
  }
}

# A type that no zone of the region has would wait for ever.
check "types_exist" {
  assert {
    condition     = !var.gpu || length(local.absent) == 0
    error_message = "No zone of ${local.region} has types of ${join(", ", local.absent)}: change instance_types."
  }
}
