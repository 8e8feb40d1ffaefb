# A Cloud Run job for each pool with machines = "cloud-run": GPUs without the quota of
# Compute Engine. A task is a machine: it serves the model, works, and ends. Functions run
# the tasks that are missing.
locals {
  job_pools = { for name, p in var.settings.pools : name => p if var.gpu && p.machines == "cloud-run" }
  # The functions that run tasks, for each job.
  job_starters = merge([for name in keys(local.job_pools) : {
    for f in ["coordinate", "reclaim"] : "${name}-${f}" => { pool = name, who = f }
  }]...)
  job_sizes = {
    nvidia-l4           = { cpu = "8", memory = "32Gi" }
    nvidia-rtx-pro-6000 = { cpu = "20", memory = "80Gi" }
  }
}

resource "google_cloud_run_v2_job" "worker" {
  for_each            = local.job_pools
  name                = "${local.name}-${each.key}"
  location            = local.region
  deletion_protection = false

  # Without parallelism all tasks of an execution run at once. A larger one than the number
  # of its tasks, which each execution sets anew, is refused.
  template {
    task_count = 1
    template {
      service_account               = google_service_account.program["worker"].email
      timeout                       = "3000s" # a worker hands its work over before
      max_retries                   = 0       # a new execution starts what is missing
      gpu_zonal_redundancy_disabled = true    # a job can't have it
      encryption_key                = local.kms_key

      node_selector {
        accelerator = var.cloud_run_gpu
      }

      containers {
        image   = each.value.engine_image
        command = ["bash"]
        args    = ["/programs/cloud-run.sh"]
        resources {
          limits = merge(local.job_sizes[var.cloud_run_gpu], { "nvidia.com/gpu" = "1" })
        }
        volume_mounts {
          name       = "programs"
          mount_path = "/programs"
        }
        dynamic "env" {
          for_each = merge(each.value.engine_env, {
            ROLLOUT_CONFIG       = var.settings.job_config
            ROLLOUT_MODEL        = each.value.model
            ROLLOUT_POOL         = each.key
            ROLLOUT_READY_WITHIN = each.value.boot_seconds
            ROLLOUT_WORKER       = local.worker_object
          })
          content {
            name  = env.key
            value = env.value
          }
        }
        dynamic "env" {
          for_each = local.token_of_hub == "" ? [] : [local.token_of_hub]
          content {
            name = "HF_TOKEN"
            value_source {
              secret_key_ref {
                secret  = env.value
                version = "latest"
              }
            }
          }
        }
      }

      volumes {
        name = "programs"
        gcs {
          bucket    = google_storage_bucket.programs[0].name
          read_only = true
        }
      }
    }
  }

  depends_on = [
    google_storage_bucket_iam_member.programs,
    google_storage_bucket_object.worker,
    google_storage_bucket_object.job_script,
    google_secret_manager_secret_iam_member.read,
    google_kms_crypto_key_iam_member.agent,
  ]
}

resource "google_cloud_run_v2_job_iam_member" "run" {
  for_each = local.job_starters
  name     = google_cloud_run_v2_job.worker[each.value.pool].name
  location = local.region
  role     = google_project_iam_custom_role.role["tasks"].name
  member   = google_service_account.program[each.value.who].member
}
