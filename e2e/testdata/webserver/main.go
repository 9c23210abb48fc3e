// Command webserver runs in the containers of the tests: webserver -p ADDRESS -h DIRECTORY. Unlike busybox's httpd, it
// starts no process for a request, and more than nine connections may wait.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"strings"
	"time"
)

func main() {
	address := flag.String("p", "", "address to serve at")
	dir := flag.String("h", "", "directory whose files are served")
	flag.Parse()
	root, err := os.OpenRoot(*dir)
	if err != nil {
		log.Fatal(err)
	}
	l, err := net.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	for {
		c, err := l.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go serve(c, root)
	}
}

// serve answers one request with the file that it names, and closes the connection.
func serve(c net.Conn, root *os.Root) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	lines := bufio.NewScanner(c)
	if !lines.Scan() {
		return
	}
	name := "index.html"
	if words := strings.Fields(lines.Text()); len(words) > 1 && words[1] != "/" {
		name = strings.TrimPrefix(words[1], "/")
	}
	for lines.Scan() && lines.Text() != "" { // the headers
	}
	status := "200 OK"
	body, err := root.ReadFile(name)
	if err != nil {
		status, body = "404 Not Found", []byte("no such file\n")
	}
	fmt.Fprintf(c, "HTTP/1.0 %s\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body)
}
