# A careful rollout: one canary first, promoted by a person (outspan deployment promote), then two at a time; back to the last good version by itself
# if it makes no progress for five minutes.
job "checkout" {
  group "api" {
    count = 8

    exec {
      command = "/opt/checkout/bin/api"
    }

    resources {
      memory = "256MiB"
    }

    port "http" {}

    check "ready" {
      type     = "http"
      port     = "http"
      path     = "/ready"
      interval = "5s"
      timeout  = "1s"
    }

    update {
      max_surge   = 2
      canary      = 1
      min_healthy = "10s"
      deadline    = "5m"
      auto_revert = true
    }

    budget { max_down = "25%" }
  }
}
