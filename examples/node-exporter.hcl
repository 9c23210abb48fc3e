# One instance on every eligible node. A drain stops it last. With --ignore-system, a drain leaves it running.
job "node-exporter" {
  class = "system"

  group "exporter" {
    role = "system"

    exec {
      command = "/usr/bin/prometheus-node-exporter"
      args    = ["--web.listen-address", ":${port.metrics}"]
    }

    resources {
      cpu    = 50
      memory = "64MiB"
    }

    port "metrics" { static = 9100 }
  }
}
