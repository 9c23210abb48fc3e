# A web service from an image. The nodes need containerd and agent { container {} }; see docs/containers.md.
job "site" {
  group "http" {
    count = 3

    container {
      image     = "docker.io/library/busybox:1.36"
      command   = "httpd"
      args      = ["-f", "-p", "${port.http}", "-h", "/www"]
      user      = "1000:1000"
      read_only = true # volumes and tmpfs can be written
      tmpfs     = ["/tmp"]
      cap_drop  = ["ALL"]

      mount "/www" {
        source    = "/srv/site"
        read_only = true
      }
    }

    resources { memory = "64MiB" } # at least 16MiB for a container

    port "http" {} # dynamic; with network = "bridge" in container: port "http" { to = 80 }

    service "site" {
      port   = "http"
      expose = 8080
    }

    check "alive" {
      type     = "http"
      port     = "http"
      path     = "/"
      interval = "2s"
    }

    budget { min_ready = 2 }
  }
}
