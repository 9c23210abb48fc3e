# Redis with one leader and two followers. A drain moves followers at once; a leader first hands over to a follower, without losing a
# write. Clients find the leader by asking any member: redis-cli -h ANY_NODE -p 16379 get outspan:leader
#
# When a leader's machine dies nobody is made the leader by itself: use Sentinel for that. What follows keeps serving reads.
# Copy member, facts, live and resign to /opt/redis on every machine, and install redis there.
job "redis" {
  class = "production"

  group "member" {
    count = 3
    role  = "leader-follower"

    exec {
      command = "/opt/redis/member"
    }
    resources {
      cpu    = 200
      memory = "128MiB"
    }

    port "redis" {}
    service "redis" {
      port   = "redis"
      expose = 16379
    }
    check "live" {
      type     = "exec"
      exec     = ["/opt/redis/live"]
      interval = "1s"
      grace    = "30s" # a new follower fetches everything first
    }
    role_check {
      exec     = ["/opt/redis/facts"]
      interval = "1s"
    }
    hook "before_stop" {
      exec    = ["/opt/redis/resign"]
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
