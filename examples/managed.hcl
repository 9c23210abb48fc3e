# The first machine of a cluster: what outspan up writes into /etc/outspan.d/outspan.hcl, and below that what may be
# added there or in another file of that directory. Certificates and keys are in data_dir, and renew themselves.
#
#   sudo outspan up

name     = "s1"
cluster  = "outspan"
data_dir = "/var/lib/outspan"

server {
  bootstrap_expect = 1 # outspan join writes 0, and retry_join with the addresses of the servers
}

agent {}

listen {
  address = "0.0.0.0"
}

advertise {
  address = "10.0.0.1"
}

tls {
  managed = true
}

# The cluster's first settings. Change them later with: outspan settings set
settings {
  drain_deadline = "30m"
}

log {
  format = "json"
}
