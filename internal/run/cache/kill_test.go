package cache_test

func child(string) {}
