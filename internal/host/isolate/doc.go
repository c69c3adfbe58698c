// Package isolate restricts what a VM's process may see and use. Each restriction is set up by this program itself,
// started again under another name (see init in child.go), so that no other file has to be installed.
//
// A Veil presents directories without the files of the host or of other users.
package isolate
