// Package isolate puts fences around what a VM's process may see and use. Each fence
// is set up by this program itself, started anew under another name (see init in child.go),
// so that no other file has to be installed.
//
// Veil shows directories without what belongs to the host or to other users.
package isolate
