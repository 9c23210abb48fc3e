# A database with one copy of its data, on one node. A drain leaves it running, and lists it and its volume as blockers.
# Acknowledge it with outspan node ack-blockers NODE.
job "ledger" {
  class = "critical"

  group "db" {
    count = 1
    role  = "local"

    exec {
      command = "/usr/lib/postgresql/15/bin/postgres"
      args    = ["-D", "/srv/ledger", "-p", "${port.sql}"]
      user    = "postgres"
    }

    resources {
      memory = "1GiB"
    }

    port "sql" { static = 5432 }

    # The data is in the agent's data_dir, and is mounted at this path only for this program and its checks. An agent
    # without root can't mount it. OUTSPAN_VOLUME_DATA in the environment is the right path in both cases.
    volume "data" {
      kind = "local"
      path = "/srv/ledger"
    }

    check "accepts" {
      type = "tcp"
      port = "sql"
    }

    constraint {
      attribute = "node.label.disk"
      operator  = "="
      value     = "ssd"
    }

    stop {
      signal = "SIGINT" # a fast shutdown of postgres
      grace  = "1m"
    }
  }
}
