# PostgreSQL: a primary with its data on one machine, and two replicas that each have a copy. The setting node_drain_policy
# decides what a drain does with a replica. With block-for-eviction, a new replica is filled elsewhere, and the old one is
# stopped once the new one is in sync. The primary stays where its data is: move it with outspan volume migrate, or
# acknowledge that it stays with outspan node ack-blockers.
#
# Copy primary, replica, facts and live to /opt/postgres on every machine, and install postgresql there. Change the password.
job "postgres" {
  class = "critical"

  group "primary" {
    count = 1
    exec {
      command = "/opt/postgres/primary"
      user    = "postgres"
    }
    env = { POSTGRES_PASSWORD = "change-me" }
    resources {
      cpu    = 500
      memory = "256MiB"
    }
    port "postgres" {}
    service "postgres" {
      port   = "postgres"
      expose = 15432
    }
    volume "data" {
      kind = "local"
      path = "/srv/outspan-postgres"
    }
    check "live" {
      type     = "exec"
      exec     = ["/opt/postgres/live"]
      interval = "2s"
      timeout  = "3s"
      grace    = "60s"
    }
    stop {
      signal = "SIGINT" # a fast shutdown
      grace  = "30s"
    }
  }

  group "replica" {
    count = 2
    role  = "replicated"
    exec {
      command = "/opt/postgres/replica"
      user    = "postgres"
    }
    env = { POSTGRES_PASSWORD = "change-me" }
    resources {
      cpu    = 500
      memory = "256MiB"
    }
    port "postgres" {}
    service "postgres-read" {
      port   = "postgres"
      expose = 15433
    }
    volume "data" {
      kind = "replicated"
      path = "/srv/outspan-postgres-replica"
    }
    check "live" {
      type     = "exec"
      exec     = ["/opt/postgres/live"]
      interval = "2s"
      timeout  = "3s"
      grace    = "60s"
    }
    role_check {
      exec     = ["/opt/postgres/facts"]
      interval = "1s"
      timeout  = "3s"
    }
    stop {
      signal = "SIGINT"
      grace  = "30s"
    }
  }
}
