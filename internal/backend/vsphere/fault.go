package vsphere

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"nearmetal/internal/text"
)

// explain converts an error of vSphere into one line: what failed, and why in vCenter's own words. nil stays nil.
func (s *Session) explain(what string, err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	var denied *types.NoPermission
	if _, ok := fault.As(err, &denied); ok {
		return s.noPermission(what, denied)
	}
	var missing *find.NotFoundError
	if errors.As(err, &missing) {
		return fmt.Errorf("vSphere server %s: %s: %s", s.access.server, what, text.Clean(missing.Error()))
	}
	return fmt.Errorf("vSphere server %s: cannot %s: %w", s.access.server, what, &said{words(err), err})
}

// said is an error in vCenter's words.
type said struct {
	text string
	err  error
}

func (e *said) Error() string { return e.text }
func (e *said) Unwrap() error { return e.err }

// words returns vCenter's messages for an error: its localised message, else the fault's name; and the messages below
// it.
func words(err error) string {
	if soap.IsSoapFault(err) {
		f := soap.ToSoapFault(err)
		said := f.String
		if v := f.VimFault(); v != nil && said == "" {
			said = faultName(v)
		}
		return text.OneLine(said)
	}
	var has types.HasLocalizedMethodFault
	if errors.As(err, &has) {
		return text.OneLine(localised(has.GetLocalizedMethodFault()))
	}
	return text.OneLine(err.Error())
}

// localised returns the message of a fault, with the messages in the fault itself.
func localised(f *types.LocalizedMethodFault) string {
	if f == nil {
		return "no reason"
	}
	text := f.LocalizedMessage
	if text == "" && f.Fault != nil {
		text = faultName(f.Fault)
	}
	if f.Fault != nil {
		if base := f.Fault.GetMethodFault(); base != nil {
			for _, m := range base.FaultMessage {
				if m.Message != "" && !strings.Contains(text, m.Message) {
					text += ": " + m.Message
				}
			}
		}
	}
	return text
}

// faultName returns the type of a fault: "InsufficientMemoryResourcesFault".
func faultName(f any) string {
	t := reflect.TypeOf(f)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Name()
}

// noPermission returns an error that names the privilege and the object.
func (s *Session) noPermission(what string, f *types.NoPermission) error {
	privilege, object := f.PrivilegeId, ""
	if f.Object != nil {
		object = f.Object.Type + " " + f.Object.Value
	}
	for _, m := range f.MissingPrivileges {
		if object == "" {
			object = m.Entity.Type + " " + m.Entity.Value
		}
		for _, p := range m.PrivilegeIds {
			if privilege == "" {
				privilege = p
			} else if p != privilege {
				privilege += ", " + p
			}
		}
	}
	if object == "" {
		object = "an object"
	}
	if privilege == "" {
		privilege = "a privilege"
	}
	return fmt.Errorf("vSphere server %s: cannot %s: %s lacks %s on %s: an administrator of vCenter can add it to a role", s.access.server, what, s.access.user, privilege, object)
}
