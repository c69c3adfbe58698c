// A module of its own, so that nearmetal's dependencies are those of its programs and tests.
module nearmetal/tools/sbom

go 1.22

require (
	github.com/CycloneDX/cyclonedx-go v0.9.2
	github.com/google/licensecheck v0.3.1
)
