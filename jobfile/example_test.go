package jobfile_test

import (
	"fmt"

	"github.com/outspan/outspan/jobfile"
)

func ExampleParse() {
	spec, err := jobfile.Parse("web.hcl", []byte(`
job "web" {
  group "http" {
    count = 3
    exec {
      command = "/opt/web/bin/web"
    }
    resources {
      memory = "64MiB"
    }
  }
}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	g := spec.Groups[0]
	fmt.Println(spec.Name, g.Name, g.Count, g.Exec.Command, g.Resources.MemoryBytes)

	_, err = jobfile.Parse("web.hcl",
		[]byte("job \"web\" {\n  group \"http\" {\n    exec {\n      command = 7\n    }\n  }\n}\n"))
	fmt.Println(err)
	// Output:
	// web http 3 /opt/web/bin/web 67108864
	// web.hcl:4,17: Wrong type: command takes a text in quotes, such as command = "...". (invalid)
}
