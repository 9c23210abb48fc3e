# A careful rollout: first one canary, which a person promotes with outspan deployment promote, then two instances at a
# time. If the rollout makes no progress for five minutes, the job returns to the last good version by itself.
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
