package jobfile

// Hints for words of compose, and for keys that stand in the wrong one of group and container.
const (
	writePorts   = `Write port "NAME" { static = 8080 } in the group, and service "NAME" { port = "NAME" } for its users.`
	writeVolumes = `Write volume "NAME" { path = "/data" } in the group, or in container, for a path of the node, ` +
		`mount "/data" { source = "/data" }.`
	writeEnv     = `Write env = { NAME = "value" } in the group.`
	writeRestart = `A program is restarted without it; restart { } in the group says how often.`
	writeMemory  = `Write resources { memory = "128MiB" } in the group.`
	writeCheck   = `Write check "NAME" { } in the group.`
	writeCount   = `Write count = 2 in the group.`
	writeNothing = `There is none: a program tries again until what it needs is there.`
	writeProgram = `It belongs into container { }, or into exec { } for a program of the node.`
	writeInside  = `It belongs into container { }.`
)

var foreignToContainer = map[string]string{
	"ports": writePorts, "port": writePorts, "volumes": writeVolumes, "volume": writeVolumes,
	"environment": writeEnv, "env": writeEnv, "restart": writeRestart, "healthcheck": writeCheck, "check": writeCheck,
	"mem_limit": writeMemory, "memory": writeMemory, "resources": writeMemory, "depends_on": writeNothing,
	"deploy": writeCount, "replicas": writeCount, "count": writeCount,
	"network_mode": `Write network = "host" or network = "bridge".`,
	"shm_size":     `Write shm = "128MiB".`,
	"ulimits":      `Write rlimits = { nofile = 4096 }.`,
	"privileged":   `There is none; cap_add gives the program capabilities.`,
}

var foreignToGroup = map[string]string{
	"ports": writePorts, "volumes": writeVolumes, "environment": writeEnv, "restart": writeRestart,
	"healthcheck": writeCheck, "mem_limit": writeMemory, "memory": writeMemory, "depends_on": writeNothing,
	"deploy": writeCount, "replicas": writeCount,
	"command": writeProgram, "args": writeProgram, "user": writeProgram, "rlimits": writeProgram,
	"image": writeInside, "entrypoint": writeInside, "network": writeInside, "mount": writeInside, "tmpfs": writeInside,
	"cap_add": writeInside, "cap_drop": writeInside, "read_only": writeInside,
}
