# The machines' own network. Nothing can connect to them; they connect to others by HTTPS.
locals {
  own_network = var.gpu && var.subnetwork == ""
  subnetwork  = local.own_network ? google_compute_subnetwork.machines[0].self_link : var.subnetwork
}

resource "google_compute_network" "machines" {
  count                   = local.own_network ? 1 : 0
  name                    = local.name
  auto_create_subnetworks = false
}

resource "google_compute_subnetwork" "machines" {
  count                    = local.own_network ? 1 : 0
  name                     = local.name
  network                  = google_compute_network.machines[0].id
  region                   = local.region
  ip_cidr_range            = "10.128.0.0/20"
  private_ip_google_access = true # Google's services, also without external addresses
}

# A network admits no incoming connection unless a rule allows it. This rule says so, in
# front of rules that others add.
resource "google_compute_firewall" "no_ingress" {
  count         = local.own_network ? 1 : 0
  name          = "${local.name}-no-ingress"
  network       = google_compute_network.machines[0].id
  direction     = "INGRESS"
  priority      = 1000
  source_ranges = ["0.0.0.0/0"]
  deny {
    protocol = "all"
  }
}

resource "google_compute_firewall" "https" {
  count              = local.own_network ? 1 : 0
  name               = "${local.name}-https"
  network            = google_compute_network.machines[0].id
  direction          = "EGRESS"
  priority           = 1000
  destination_ranges = ["0.0.0.0/0"]
  allow {
    protocol = "tcp"
    ports    = ["443"]
  }
}

resource "google_compute_firewall" "no_egress" {
  count              = local.own_network ? 1 : 0
  name               = "${local.name}-no-egress"
  network            = google_compute_network.machines[0].id
  direction          = "EGRESS"
  priority           = 2000
  destination_ranges = ["0.0.0.0/0"]
  deny {
    protocol = "all"
  }
}
