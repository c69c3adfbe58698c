package launch

import (
	"strings"
	"testing"
)

func TestRanks(t *testing.T) {
	for line, want := range map[string]int{
		"mpirun -n 4 ./app":       4,
		"mpirun -np 4 ./app -n 9": 4,
		"mpiexec --np=8 ./app":    8,
		"mpirun -c 2 x":           2,
		"mpirun --mca btl self,tcp --map-by node --n 3 ./a":             3,
		"mpiexec -genv A B -ppn 1 -n 2 ./a":                             2,
		"mpiexec -n 2 ./a : -n 3 ./b":                                   5,
		"mpirun --oversubscribe -x LD_LIBRARY_PATH --host vm0:2 -n 6 a": 6,
		"mpirun ./app -n 5":                                             0,
		"mpirun":                                                        0,
		"mpirun -n":                                                     0,
		"mpirun -n x ./a":                                               0,
		"mpirun -n -4 ./a":                                              0,
		"mpirun -n 99999999999999999999 ./a":                            0,
		"mpirun --frobnicate 7 -n 3 ./a":                                0,
		"mpiexec -n 2 ./a : ./b":                                        0,
		"":                                                              0,
	} {
		n, ok := Ranks(strings.Fields(line))
		if n != want || ok != (want > 0) {
			t.Errorf("%s: %d %v, want %d", line, n, ok, want)
		}
	}
}

func TestCrowdedWarning(t *testing.T) {
	if w := CrowdedWarning([]string{"mpirun", "-n", "3", "a"}, twoHosts); w != "" {
		t.Error(w)
	}
	if w := CrowdedWarning([]string{"mpirun", "-n", "4", "a"}, twoHosts); !strings.HasPrefix(w, "4 ranks on 3 vCPUs of 2 VMs") {
		t.Error(w)
	}
}

func FuzzRanks(f *testing.F) {
	f.Add("mpirun -n 4 ./app : -np 3 b")
	f.Fuzz(func(t *testing.T, line string) {
		if n, ok := Ranks(strings.Split(line, " ")); ok && n < 1 {
			t.Errorf("%q: %d", line, n)
		}
	})
}
