package chaos

// Nemeses returns all nemeses.
func Nemeses() []Nemesis {
	var all []Nemesis
	for _, some := range [][]Nemesis{
		memberNemeses(), networkNemeses(), requestNemeses(), leaseNemeses(), storeNemeses(), authNemeses(),
	} {
		all = append(all, some...)
	}
	return all
}
