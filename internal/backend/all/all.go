// Package all has every back end of nearmetal: a program that imports it can open them by name.
package all

import _ "nearmetal/internal/backend/qemu" // the default
