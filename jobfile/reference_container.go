package jobfile

import "github.com/outspan/outspan/internal/hclfile"

const besideImage = `image = "registry.lan/web:1.2"`

var containerTexts = map[string]hclfile.KeyText{
	"image": {
		Means: "the image, in place of `exec`. `job run` asks its registry for the digest, and all instances of the " +
			"version " +
			"run that digest. With `NAME@sha256:...` it is given",
		Example: `"registry.lan/web:1.2"`,
	},
	"platforms": {
		Means: "only nodes with one of these platforms get instances. Default: the platforms of the image, which `job run` " +
			"finds out with the digest",
		Example: `["linux/amd64"]`, Beside: besideImage,
	},
	"entrypoint": {
		Means:   "in place of the image's entrypoint; variables as in `args` of `exec`",
		Example: `["/bin/web"]`, Beside: besideImage,
	},
	"command": {
		Means:   "with `args`, in place of the arguments that the image gives its entrypoint; the first of them",
		Example: `"serve"`, Beside: besideImage,
	},
	"args": {
		Means:   "the arguments after `command`; variables as in `args` of `exec`",
		Example: `["--listen", ":${port.http}"]`, Beside: besideImage, With: withPort,
	},
	"user": {
		Means:   "user, or user:group, by name or number. Default: the user of the image",
		Example: `"1000:1000"`, Beside: besideImage,
	},
	"network": {
		Means: "`host`: the container uses the network of its node; `bridge`: it has [its own](containers.md#networks), " +
			"with ports that lead into it",
		Default: `"host"`, Example: `"bridge"`, Beside: besideImage,
	},
	"read_only": {
		Means:   "the root file system can't be written; volumes, `tmpfs` and `mount` can",
		Default: "false", Example: "true", Beside: besideImage,
	},
	"tmpfs": {
		Means:   "paths with an empty file system in memory; what is in it counts as memory of the instance",
		Example: `["/run", "/tmp"]`, Beside: besideImage,
	},
	"shm": {
		Means:   "size of `/dev/shm`; what is in it counts as memory of the instance",
		Default: `"64MiB"`, Example: `"256MiB"`, Beside: besideImage,
	},
	"rlimits": {
		Means:   "limits of the kernel for each process, by their names in `ulimit`",
		Example: `{ nofile = 4096 }`, Beside: besideImage,
	},
	"cap_add": {
		Means:   "capabilities beside those that every container has, without `CAP_`",
		Example: `["NET_ADMIN"]`, Beside: besideImage,
	},
	"cap_drop": {
		Means:   "capabilities that the program does not need; `ALL`: all but those of `cap_add`",
		Example: `["ALL"]`, Beside: besideImage,
	},
}

var mountTexts = map[string]hclfile.KeyText{
	"source": {
		Means:   "the file or directory of the node that the container sees at the path of the label",
		Example: `"/etc/ssl/certs"`,
	},
	"read_only": {
		Means:   "the container can't change it",
		Default: "false", Example: "true", Beside: `source = "/etc/ssl/certs"`,
	},
}
