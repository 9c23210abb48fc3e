# Three members of a NATS cluster with JetStream. A member is stopped only while it does not lead the cluster's own group and the others answer; its place
# is taken by a member of the same name with an empty volume, which JetStream fills before the next one may go. Members find each other by OUTSPAN_PEERS.
# Copy member, facts and resign to /opt/nats on every machine, and install nats-server there. Change the password. Give streams three replicas.
#
#   outspan job run examples/nats/nats.hcl
#   nats --server ANY_NODE:14222 stream add orders --subjects 'orders.>' --replicas 3
#   outspan node drain n1
job "nats" {
  class = "critical"

  group "member" {
    count = 3
    role  = "quorum"

    exec {
      command = "/opt/nats/member"
      args    = ["3"] # members that found the cluster; the count
    }
    env = { NATS_SYSTEM_PASSWORD = "change-me" }
    resources {
      cpu    = 500
      memory = "256MiB"
    }

    port "client" {}
    port "route" {}
    port "monitor" {}
    service "nats" {
      port   = "client"
      expose = 14222
    }
    volume "data" {
      kind = "replicated"
      path = "/srv/outspan-nats"
    }
    check "current" {
      type     = "http"
      port     = "monitor"
      path     = "/healthz" # 200 once this member's copy of every stream is current
      interval = "1s"
      # With an empty volume it says so for a moment before it has heard of any stream: the next member must not go then.
      successes = 5
      timeout   = "3s"
      grace     = "2m" # joining waits for the others
    }
    role_check {
      exec     = ["/opt/nats/facts"]
      interval = "1s"
      timeout  = "3s"
    }
    hook "before_stop" {
      exec    = ["/opt/nats/resign"]
      timeout = "20s"
    }
    stop {
      grace = "30s"
    }
    distinct {
      attribute = "node.id"
    }
    budget {
      min_ready = 2
    }
  }
}
