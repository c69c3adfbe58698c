package tenant

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servergroups"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/groups"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"github.com/gophercloud/gophercloud/v2/pagination"

	"nearmetal/internal/backend"
	"nearmetal/internal/lazyregexp"
)

// Kinds of objects, and the keys of a Ref.
const (
	kindServer   = "server"
	kindPort     = "port"
	kindSecurity = "security group"
	kindGroup    = "server group"

	keyKind = "kind"
	keyName = "name"
	keyMark = "mark"
	keyMade = "made" // time of the record, in seconds since 1970
	// metaMark is the key of a server's metadata that has the mark.
	metaMark = "nearmetal"
)

var markForm = lazyregexp.New(`^[0-9a-f]{16}$`)

// ref returns the record of an object that is about to be created. Its name has the mark, except for a server, whose
// metadata has it.
func (d *driver) ref(kind, name string) backend.Ref {
	return backend.Ref{Driver: d.name, What: kind + " " + name, ID: map[string]string{keyKind: kind, keyName: name, keyMark: d.mark, keyMade: strconv.FormatInt(time.Now().Unix(), 10)}}
}

// grace is how long after its record an object may still appear although its owner is dead: the cloud received the
// call, and the answer was not read.
var grace = 20 * time.Second

// answered are the objects, by mark and What, whose creating call was answered to this process: they do not appear
// later. A server group and a security group have the same name.
var answered sync.Map

// late reports whether a missing object may still appear.
func late(r backend.Ref) bool {
	if _, ok := answered.Load(r.ID[keyMark] + r.What); ok {
		return false
	}
	made, err := strconv.ParseInt(r.ID[keyMade], 10, 64)
	age := time.Since(time.Unix(made, 0))
	return err == nil && age >= 0 && age < grace
}

// settled records that the cloud has answered the call that creates an object; err is the call's result. Without an
// answer, or after a server error, the object may still appear.
func settled(r backend.Ref, err error) {
	var code gophercloud.ErrUnexpectedResponseCode
	if err == nil || errors.As(err, &code) && code.Actual < 500 {
		answered.Store(r.ID[keyMark]+r.What, true)
	}
}

// goneWait is the time between queries of an object that is being deleted, because no event reports its end.
var goneWait = time.Second

// search returns the IDs of the objects of a Ref.
func search(ctx context.Context, c *center, r backend.Ref) ([]string, error) {
	name, mark := r.ID[keyName], r.ID[keyMark]
	if !markForm().MatchString(mark) || name == "" {
		return nil, errNotOurs
	}
	switch r.ID[keyKind] {
	case kindServer:
		return found(ctx, "servers", servers.List(c.compute, servers.ListOpts{}), servers.ExtractServers,
			func(s servers.Server) (string, bool) { return s.ID, s.Name == name && s.Metadata[metaMark] == mark })
	case kindPort:
		return found(ctx, "ports", ports.List(c.network, ports.ListOpts{Name: name}), ports.ExtractPorts,
			func(p ports.Port) (string, bool) { return p.ID, p.Name == name })
	case kindSecurity:
		return found(ctx, "security groups", groups.List(c.network, groups.ListOpts{Name: name}), groups.ExtractGroups,
			func(g groups.SecGroup) (string, bool) { return g.ID, g.Name == name })
	case kindGroup:
		return found(ctx, "server groups", servergroups.List(c.compute, servergroups.ListOpts{}), servergroups.ExtractServerGroups,
			func(g servergroups.ServerGroup) (string, bool) { return g.ID, g.Name == name })
	}
	return nil, errNotOurs
}

// found reads all pages of a list of objects (what names their kind for errors), and returns the IDs of those that
// ours selects.
func found[T any](ctx context.Context, what string, list pagination.Pager, extract func(pagination.Page) ([]T, error), ours func(T) (id string, is bool)) ([]string, error) {
	pages, err := list.AllPages(ctx)
	if err != nil {
		return nil, explain(what, err)
	}
	all, err := extract(pages)
	if err != nil {
		return nil, explain(what, err)
	}
	var ids []string
	for _, t := range all {
		if id, is := ours(t); is {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// remove deletes an object, and returns when it is gone. A server that is DELETED still counts, and is listed, for a
// moment.
func remove(ctx context.Context, c *center, kind, id string) error {
	var err error
	switch kind {
	case kindServer:
		err = servers.Delete(ctx, c.compute, id).ExtractErr()
	case kindPort:
		err = ports.Delete(ctx, c.network, id).ExtractErr()
	case kindSecurity:
		err = groups.Delete(ctx, c.network, id).ExtractErr()
	case kindGroup:
		err = servergroups.Delete(ctx, c.compute, id).ExtractErr()
	}
	if notFound(err) {
		return nil
	}
	if err != nil {
		return explain("deleting a "+kind, err)
	}
	if kind != kindServer {
		return nil
	}
	for {
		s, err := servers.Get(ctx, c.compute, id).Extract()
		switch {
		case notFound(err):
			return nil
		case err != nil:
			return explain("a server that is being deleted", err)
		case s.Status == "SOFT_DELETED": // the cloud keeps it for some days
			return nil
		case s.Status == "ERROR" && s.Fault.Message != "":
			// It may be an older fault: Nova continues deleting.
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("server %s is not gone yet: %w", id, context.Cause(ctx))
		case <-time.After(goneWait):
		}
	}
}
