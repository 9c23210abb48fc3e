# Three members of etcd. A member is stopped only if it does not lead and the others answer. A member of the same name
# with empty data replaces it, and etcd fills the data. Copy member, facts, resign and live to /opt/etcd on every
# machine, and install etcd there.
#
#   outspan job run examples/etcd/etcd.hcl
#   etcdctl --endpoints http://ANY_NODE:12379 put greeting hello
#   outspan node drain n1
job "etcd" {
  class = "critical"

  group "member" {
    count = 3
    role  = "quorum"

    exec {
      command = "/opt/etcd/member"
    }
    resources {
      cpu    = 500
      memory = "256MiB"
    }

    port "client" {}
    port "peer" {}
    service "etcd" {
      port   = "client"
      expose = 12379
    }
    check "live" {
      type     = "exec"
      exec     = ["/opt/etcd/live"]
      interval = "2s"
      timeout  = "3s"
      grace    = "60s" # a member that joins waits for the others
    }
    role_check {
      exec     = ["/opt/etcd/facts"]
      interval = "1s"
      timeout  = "3s"
    }
    hook "before_stop" {
      exec    = ["/opt/etcd/resign"]
      timeout = "20s"
    }
    distinct {
      attribute = "node.id"
    }
    budget {
      min_ready = 2
    }
  }
}
