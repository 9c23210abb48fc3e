# Three members of a NATS cluster with JetStream. A member is stopped only if it does not lead JetStream's meta group and
# the others answer. A member of the same name with an empty volume replaces it. JetStream fills the volume before the
# next member may stop. Members find each other by OUTSPAN_PEERS. Copy member, facts and resign to /opt/nats on every
# machine, and install nats-server there. Change the password. Give streams three replicas.
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
      args    = ["3"] # number of members that found the cluster: the count
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
      # With an empty volume it is also 200 for a moment, until it knows the streams. The next member must not stop then.
      successes = 5
      timeout   = "3s"
      grace     = "2m" # a member that joins waits for the others
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
