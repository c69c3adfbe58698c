// Package cloudtest simulates an OpenStack cloud for tests: the part of its APIs that package tenant uses, over HTTP.
// A server that it builds is a real agent, in a mount namespace of its own, which reads the user data and is reached
// over TLS. The answers are those of Zed, as far as package tenant reads them.
package cloudtest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"nearmetal/internal/guest/carry"
	"nearmetal/internal/guest/image"
)

// Cloud is a cloud with one project.
type Cloud struct {
	t   *testing.T
	url string

	serving  sync.WaitGroup
	quiet    atomic.Bool
	mu       sync.Mutex
	n        int
	things   map[string]map[string]map[string]any // by kind and ID
	ends     map[string]context.CancelFunc        // of servers' agents, to end them
	listens  map[string]net.Listener              // by address
	deleted  map[string]int                       // servers that are still DELETED: number of queries of each
	searches map[string]int                       // list calls by collection, since the last change
	calls    []string                             // calls that changed something: METHOD kind

	// Program is nearmetal, which is then the servers' agent; "": this process is.
	Program string

	// Faults to simulate. A test holds Lock to set them while servers are requested.
	Quota   int              // of vCPUs
	Groups  int              // quota of server groups; 0: none
	Members int              // of a server group; 0: unlimited
	Open    bool             // Neutron has no security groups
	Region  string           // the flavor's nearmetal:region; "": none
	Fault   string           // servers end in ERROR with this message; "": no
	Refuse  map[string]int   // METHOD COLLECTION: the status of every such call
	Once    map[string][]int // METHOD COLLECTION: statuses of the first such calls
	Lose    string           // METHOD COLLECTION: carried out and answered with 500, once
	Silent  string           // METHOD COLLECTION: carried out and not answered, once
	// METHOD COLLECTION: not answered, and carried out only after two searches or at Quiet, once.
	Late     string
	Image    map[string]any         // additional properties of the image
	OnChange func(n int, done bool) // before and after call n that changes something
}

const uuidForm = "%08x-1111-4222-8333-444444444444"

// New starts a cloud, which ends with the test, and names it test in a clouds.yaml to which OS_CLIENT_CONFIG_FILE
// refers.
func New(t *testing.T) *Cloud {
	t.Helper()
	c := &Cloud{t: t, searches: map[string]int{}, things: map[string]map[string]map[string]any{}, ends: map[string]context.CancelFunc{}, listens: map[string]net.Listener{}, deleted: map[string]int{}, Quota: 64, Refuse: map[string]int{}, Once: map[string][]int{}}
	s := httptest.NewServer(c)
	c.url = s.URL
	t.Cleanup(func() {
		s.Close()
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, end := range c.ends {
			end()
		}
		for _, l := range c.listens {
			l.Close()
		}
	})
	file := filepath.Join(t.TempDir(), "clouds.yaml")
	text := fmt.Sprintf("clouds:\n  test:\n    auth_type: v3applicationcredential\n    region_name: one\n    auth:\n      auth_url: %s/v3\n      application_credential_id: id\n      application_credential_secret: hidden\n", c.url)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("OS_CLIENT_CONFIG_FILE", file)
	t.Setenv("OS_CLOUD", "")
	return c
}

// subnet belongs to this process only: all of 127.0.0.0/8 is this host.
var subnet = fmt.Sprintf("127.%d.%d.", 64+os.Getpid()>>8&0x3f, os.Getpid()&0xff)

// Left returns the existing objects, as "kind name".
func (c *Cloud) Left() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []string
	for kind, all := range c.things {
		for _, x := range all {
			list = append(list, fmt.Sprint(kind, " ", x["name"]))
		}
	}
	sort.Strings(list)
	return list
}

// One returns the only object of a collection.
func (c *Cloud) One(kind string) map[string]any {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.things[kind]) != 1 {
		c.t.Errorf("%d of %s", len(c.things[kind]), kind)
	}
	for _, x := range c.things[kind] {
		return x
	}
	return map[string]any{}
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if v != nil {
		json.NewEncoder(w).Encode(v)
	}
}

func oops(w http.ResponseWriter, status int, text string) {
	answer(w, status, map[string]any{"error": map[string]any{"code": status, "message": text}})
}

// kinds are the collections, by path, with the name of one object.
var kinds = map[string]string{"servers": "server", "os-server-groups": "server_group", "security-groups": "security_group", "security-group-rules": "security_group_rule", "ports": "port"}

func (c *Cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.serving.Add(1)
	defer c.serving.Done()
	body, _ := io.ReadAll(r.Body)
	path := strings.Trim(r.URL.Path, "/")
	if path == "v3/auth/tokens" {
		c.token(w, body)
		return
	}
	if id, version := map[string]string{"compute": "v2.1", "network": "v2.0", "image": "v2"}[path], map[string]string{"compute": "2.93"}[path]; id != "" {
		answer(w, 200, map[string]any{"versions": []any{map[string]any{"id": id, "status": "CURRENT", "version": version, "min_version": "2.1",
			"links": []any{map[string]any{"rel": "self", "href": c.url + "/" + path + "/" + id + "/"}}}}})
		return
	}
	if r.Header.Get("X-Auth-Token") != "token" {
		oops(w, 401, "who are you?")
		return
	}
	f := strings.Split(path, "/")[1:] // without the service's name
	if len(f) > 0 && (f[0] == "v2.1" || f[0] == "v2.0" || f[0] == "v2") {
		f = f[1:]
	}
	id, action := "", ""
	if len(f) > 1 {
		id = f[1]
	}
	if len(f) > 2 {
		action = f[2]
	}
	if len(f) == 0 {
		oops(w, 404, "no such thing")
		return
	}
	key := r.Method + " " + f[0]
	if action != "" {
		key += " " + action
	}
	c.mu.Lock()
	if list := c.Once[key]; len(list) > 0 {
		c.Once[key] = list[1:]
		c.mu.Unlock()
		w.Header().Set("Retry-After", "0")
		oops(w, list[0], "not now")
		return
	}
	status := c.Refuse[key]
	change := r.Method == http.MethodPost || r.Method == http.MethodDelete
	n := 0
	if change {
		c.calls = append(c.calls, key)
		n = len(c.calls)
		c.searches = map[string]int{}
	} else {
		c.searches[f[0]]++
	}
	hook, lose := c.OnChange, c.Lose == key
	if lose {
		c.Lose = ""
	}
	silent := c.Silent == key
	if silent {
		c.Silent = ""
	}
	late := c.Late == key
	if late {
		c.Late = ""
	}
	c.mu.Unlock()
	if status != 0 {
		oops(w, status, "Policy doesn't allow it to be performed.")
		return
	}
	if change && hook != nil {
		hook(n, false)
		defer hook(n, true)
	}
	if silent {
		c.serve(httptest.NewRecorder(), r, f, id, action, body)
		<-r.Context().Done()
		return
	}
	if late {
		<-r.Context().Done()
		for c.Searches(f[0]) < 2 && !c.quiet.Load() {
			time.Sleep(time.Millisecond)
		}
		c.serve(httptest.NewRecorder(), r, f, id, action, body)
		return
	}
	if lose {
		c.serve(httptest.NewRecorder(), r, f, id, action, body)
		oops(w, 500, "Unexpected API Error.")
		return
	}
	c.serve(w, r, f, id, action, body)
}

func (c *Cloud) token(w http.ResponseWriter, body []byte) {
	if !strings.Contains(string(body), `"application_credential"`) || !strings.Contains(string(body), `"hidden"`) {
		oops(w, 401, "The request you have made requires authentication.")
		return
	}
	endpoint := func(kind, path string) map[string]any {
		return map[string]any{"type": kind, "name": kind, "endpoints": []any{map[string]any{"interface": "public", "region": "one", "region_id": "one", "url": c.url + path, "id": kind}}}
	}
	w.Header().Set("X-Subject-Token", "token")
	answer(w, 201, map[string]any{"token": map[string]any{"expires_at": "2099-01-01T00:00:00.000000Z", "methods": []string{"application_credential"},
		"catalog": []any{endpoint("compute", "/compute"), endpoint("network", "/network"), endpoint("image", "/image")}}})
}

func (c *Cloud) serve(w http.ResponseWriter, r *http.Request, f []string, id, action string, body []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch f[0] {
	case "flavors":
		specs := map[string]string{"hw:cpu_policy": "dedicated"}
		if c.Region != "" {
			specs["nearmetal:region"] = c.Region
		}
		answer(w, 200, map[string]any{"flavors": []any{
			map[string]any{"id": "f1", "name": "hpc.2", "vcpus": 2, "ram": 1024, "extra_specs": specs},
			map[string]any{"id": "f2", "name": "m1.1", "vcpus": 1, "ram": 512, "extra_specs": map[string]string{}}}})
		return
	case "images":
		x := map[string]any{"id": "i1", "name": "rocky", "status": "active"}
		for k, v := range c.Image {
			x[k] = v
		}
		answer(w, 200, map[string]any{"images": []any{x}})
		return
	case "networks":
		answer(w, 200, map[string]any{"networks": []any{map[string]any{"id": "n1", "name": "private"}}})
		return
	case "subnets":
		answer(w, 200, map[string]any{"subnet": map[string]any{"id": "s1", "cidr": subnet + "0/24", "gateway_ip": subnet + "1", "ip_version": 4}})
		return
	case "limits":
		answer(w, 200, map[string]any{"limits": map[string]any{"absolute": map[string]any{"maxTotalInstances": 10, "totalInstancesUsed": 1, "maxTotalCores": c.Quota, "totalCoresUsed": 1, "maxTotalRAMSize": -1, "totalRAMUsed": 1,
			"maxServerGroups": c.Groups, "totalServerGroupsUsed": 2, "maxServerGroupMembers": c.Members}}})
		return
	}
	if f[0] == "extensions" {
		list := []any{map[string]any{"alias": "port-security"}}
		if !c.Open {
			list = append(list, map[string]any{"alias": "security-group"})
		}
		answer(w, 200, map[string]any{"extensions": list})
		return
	}
	if c.Open && strings.HasPrefix(f[0], "security-group") {
		oops(w, 404, "The resource could not be found.")
		return
	}
	one, ok := kinds[f[0]]
	if !ok {
		c.t.Errorf("%s %s: not known", r.Method, r.URL.Path)
		oops(w, 404, "no such thing")
		return
	}
	all := c.things[f[0]]
	if all == nil {
		all = map[string]map[string]any{}
		c.things[f[0]] = all
	}
	switch {
	case r.Method == http.MethodGet && (id == "" || id == "detail"):
		list := []any{}
		for _, x := range all {
			if name := r.URL.Query().Get("name"); name == "" || x["name"] == name {
				list = append(list, x)
			}
		}
		answer(w, 200, map[string]any{one + "s": list, strings.ReplaceAll(f[0], "-", "_"): list})
	case r.Method == http.MethodPost && id == "":
		var in map[string]map[string]any
		if err := json.Unmarshal(body, &in); err != nil || in[one] == nil {
			oops(w, 400, "not understood")
			return
		}
		c.n++
		x := in[one]
		x["id"] = fmt.Sprintf(uuidForm, c.n)
		if hints, ok := in["os:scheduler_hints"]; ok {
			x["hints"] = hints
		}
		status := 201
		switch f[0] {
		case "os-server-groups":
			status = 200 // as in Nova
		case "ports":
			if _, ok := x["security_groups"]; ok && c.Open {
				oops(w, 400, "Unrecognized attribute(s) 'security_groups'")
				return
			}
			c.makePort(x)
		case "servers":
			status = 202
			c.makeServer(x)
		case "security-group-rules":
			sg := c.things["security-groups"][fmt.Sprint(x["security_group_id"])]
			sg["rules"] = append(sg["rules"].([]any), x)
			answer(w, 201, map[string]any{one: x})
			return
		case "security-groups":
			x["rules"] = []any{}
		}
		all[x["id"].(string)] = x
		answer(w, status, map[string]any{one: x})
	case all[id] == nil:
		oops(w, 404, one+" "+id+" could not be found.")
	case action == "action":
		var in map[string]any
		json.Unmarshal(body, &in)
		for what := range in {
			switch what {
			case "pause":
				all[id]["status"] = "PAUSED"
			case "unpause":
				all[id]["status"] = "ACTIVE"
			case "os-getConsoleOutput":
				answer(w, 200, map[string]any{"output": "Linux\nready\x1b[31m\n"})
				return
			}
		}
		answer(w, 202, nil)
	case r.Method == http.MethodGet:
		answer(w, 200, map[string]any{one: all[id]})
		if n, ok := c.deleted[id]; ok {
			if c.deleted[id] = n + 1; n > 0 {
				delete(all, id)
			}
		}
	case r.Method == http.MethodDelete:
		if f[0] == "security-groups" && len(c.things["ports"]) > 0 {
			oops(w, 409, "Security Group in use.")
			return
		}
		// As in Nova, a deleted server is listed as DELETED for a moment before it disappears.
		if f[0] == "servers" {
			all[id]["status"] = "DELETED"
			c.deleted[id] = 0
		} else {
			delete(all, id)
		}
		if end := c.ends[id]; end != nil {
			end()
		}
		w.WriteHeader(204)
	}
}

func (c *Cloud) makePort(x map[string]any) {
	at := fmt.Sprint(subnet, 10+c.n)
	l, err := net.Listen("tcp", fmt.Sprint(at, ":", carry.Port))
	if err != nil {
		c.t.Error(err)
		return
	}
	c.listens[at] = l
	x["mac_address"] = fmt.Sprintf("fa:16:3e:00:00:%02x", c.n)
	x["fixed_ips"] = []any{map[string]any{"subnet_id": "s1", "ip_address": at}}
}

// own gives the agent a /run of its own.
const own = `mount -t tmpfs run /run && mkdir /run/nearmetal && exec "$@"`

// All returns the objects of a collection.
func (c *Cloud) All(kind string) (list []map[string]any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range c.things[kind] {
		list = append(list, x)
	}
	return list
}

// Searches returns how often a collection was listed since the begin of the last change.
func (c *Cloud) Searches(kind string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.searches[kind]
}

// Quiet ends OnChange, after the calls in progress.
func (c *Cloud) Quiet() {
	c.quiet.Store(true)
	c.serving.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.OnChange = nil
}

// makeServer starts the agent as cloud-init would.
func (c *Cloud) makeServer(x map[string]any) {
	x["status"] = "ACTIVE"
	if c.Fault != "" {
		x["status"], x["fault"] = "ERROR", map[string]any{"code": 500, "message": c.Fault}
		return
	}
	data, _ := base64.StdEncoding.DecodeString(fmt.Sprint(x["user_data"]))
	text, ok := strings.CutPrefix(string(data), "#cloud-config\n")
	var init struct {
		Files []struct{ Content string } `json:"write_files"`
	}
	if err := json.Unmarshal([]byte(text), &init); err != nil || !ok || len(init.Files) != 1 || x["config_drive"] != true {
		c.t.Errorf("user data: %v: %+v", err, x)
		return
	}
	file := filepath.Join(c.t.TempDir(), "settings")
	os.WriteFile(file, []byte(init.Files[0].Content), 0o600)
	var s *carry.Settings
	var err error
	if c.Program == "" {
		s, err = carry.ReadSettings(file)
	}
	if err != nil {
		c.t.Error(err)
		return
	}
	delete(x, "user_data") // no API returns it
	id := fmt.Sprint(x["networks"].([]any)[0].(map[string]any)["port"])
	ip := c.things["ports"][id]["fixed_ips"].([]any)[0].(map[string]any)["ip_address"].(string)
	l := c.listens[ip]
	if c.Program != "" {
		c.start(x, file, init.Files[0].Content, ip)
		return
	}
	program, err := image.Agent()
	if err != nil {
		c.t.Error(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.ends[x["id"].(string)] = cancel
	go func() {
		conn, err := carry.Accept(ctx, l, s.Secret)
		if err != nil {
			return
		}
		context.AfterFunc(ctx, func() { conn.Close() })
		carry.Run(ctx, program, s.Name, conn, "unshare", "--mount", "sh", "-c", own, "sh")
		c.mu.Lock()
		defer c.mu.Unlock()
		x["status"] = "SHUTOFF"
	}()
}

// alone sets up a server's root: its own /run and /dev/shm, its own /etc/hosts in the directory of the first
// argument, and the host name of the second. MPI libraries consider processes with the same host name to be on one
// host.
const alone = `mount -t tmpfs run /run && mount -t tmpfs shm /dev/shm && cp /etc/hosts "$1/hosts" && mount --bind "$1/hosts" /etc/hosts &&
hostname "$2" && shift 2 && exec "$@"`

// start starts nearmetal cloud-agent as cloud-init would, at the server's own address.
func (c *Cloud) start(x map[string]any, file, content, ip string) {
	var s carry.Settings
	json.Unmarshal([]byte(content), &s)
	s.Listen = fmt.Sprint(ip, ":", carry.Port)
	text, err := json.Marshal(s)
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		c.t.Error(err)
		return
	}
	c.listens[ip].Close()
	ctx, cancel := context.WithCancel(context.Background())
	c.ends[x["id"].(string)] = cancel
	cmd := exec.CommandContext(ctx, "unshare", "--mount", "--uts", "sh", "-c", alone, "sh", filepath.Dir(file), fmt.Sprint(x["name"]), c.Program, "cloud-agent", "--stay", file)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		c.t.Error(err)
		return
	}
	go func() {
		cmd.Wait()
		c.mu.Lock()
		defer c.mu.Unlock()
		x["status"] = "SHUTOFF"
	}()
}
