# Redis with one leader and two followers. A drain moves followers at once. A leader first hands over to a follower,
# without losing a write. Clients ask any member for the leader: redis-cli -h ANY_NODE -p 16379 get outspan:leader
#
# If the leader's machine dies, no follower becomes the leader by itself: use Sentinel for that. Followers still serve
# reads.
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
      grace    = "30s" # a new follower first fetches all data
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
