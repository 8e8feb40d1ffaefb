output "api_url" {
  description = "The address of the HTTP API."
  value       = google_cloud_run_v2_service.function["api"].uri
}

output "groups" {
  description = "The groups of machines, which have size 0 while no work waits."
  value       = [for g in google_compute_region_instance_group_manager.machines : g.name]
}

output "jobs" {
  description = "The Cloud Run jobs of pools with machines = \"cloud-run\"."
  value       = [for j in google_cloud_run_v2_job.worker : j.name]
}
