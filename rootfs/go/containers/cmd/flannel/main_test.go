package main

import "testing"

func TestANodeHasAnAddressOfEachFamilyThatItsNetworkCarries(t *testing.T) {
	for _, one := range []struct {
		all     []string
		hasIPv6 bool
		want    addresses
		refused bool
	}{
		{all: []string{"10.0.0.1"}, want: addresses{ipv4: "10.0.0.1"}},
		{all: []string{"10.0.0.1", "fd00::1"}, want: addresses{ipv4: "10.0.0.1"}},
		{all: []string{"fd00::1", "10.0.0.1"}, hasIPv6: true, want: addresses{"10.0.0.1", "fd00::1"}},
		{all: []string{"10.0.0.1"}, hasIPv6: true, refused: true},
		{all: []string{"fd00::1"}, hasIPv6: true, refused: true},
		{all: []string{""}, refused: true},
	} {
		node, err := nodeAddresses(one.all, one.hasIPv6)
		if (err != nil) != one.refused || (err == nil && node != one.want) {
			t.Errorf("%v: %v, %v", one.all, node, err)
		}
	}
}
