# A database with one copy of its data, on one node. A drain leaves it running and names it, with its volume, as what blocks; acknowledge it with
# outspan node ack-blockers NODE.
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

    # Mounted at this path for this program and its checks alone; the data itself is in the agent's data_dir. Where the agent is not root,
    # nothing is mounted: use the environment variable OUTSPAN_VOLUME_DATA, which names the right place in both cases.
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
      signal = "SIGINT" # postgres: fast shutdown
      grace  = "1m"
    }
  }
}
