//go:build vsphere

package main

import "nearmetal/internal/backend/vsphere"

func init() { vsphereHere = vsphere.Part{Ask: askPassword} }
