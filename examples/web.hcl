# A stateless web service. Replacements are ready before old instances stop, and at least two stay ready during drains.
job "web" {
  class = "production"

  group "http" {
    count = 3
    role  = "service"

    exec {
      command = "/opt/web/bin/web"
      args    = ["--listen", ":${port.http}"]
      user    = "web"
    }

    env = { LOG = "info" }

    resources {
      cpu    = 250      # shares: a promise, not a cap
      memory = "128MiB" # a hard cap
    }

    port "http" {} # dynamic; the program finds it in ${port.http} or OUTSPAN_PORT_HTTP

    # Every agent listens on 8080 and forwards to ready instances.
    service "web" {
      port   = "http"
      expose = 8080
    }

    check "alive" {
      type     = "http"
      port     = "http"
      path     = "/healthz"
      interval = "2s"
    }

    stop {
      signal = "SIGTERM"
      grace  = "10s"
    }

    update {
      max_surge   = 1
      auto_revert = true
    }

    budget {
      min_ready = 2
      rate {
        max    = 1
        window = "1m"
      }
    }

    spread { attribute = "node.label.rack" }
  }
}
