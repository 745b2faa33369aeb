# Records of orders with an index, a search result and a cache: dicts, lists, tuples, strings and numbers.
import random

r = random.Random(1)
first = "Anna Bela Carl Dora Emil Fina Gero Hana Ivan Jule Karl Lena Max Nele Otto Pia".split()
last = "Adler Berg Conrad Dahl Ebert Frank Graf Huber Igel Jung Koch Lang Meier Noll".split()
cities = "Aachen Bremen Cottbus Dresden Essen Fulda Gotha Halle Ilmenau Jena".split()

customers = []
for i in range(60_000):
    name = f"{r.choice(first)} {r.choice(last)}"
    customers.append({"id": i, "name": name, "mail": f"{name.replace(' ', '.').lower()}{i}@shop.example",
                      "city": r.choice(cities), "since": 1_500_000_000 + r.randrange(200_000_000)})
orders = []
for i in range(250_000):
    orders.append((i, r.randrange(60_000), round(r.expovariate(0.02), 2), ["new", "paid", "sent"][i % 3]))
by_customer = {}
for order in orders:
    by_customer.setdefault(order[1], []).append(order)
by_mail = {c["mail"]: c for c in customers}
words = {}
for c in customers:
    for part in c["mail"].split("@")[0].split("."):
        words.setdefault(part, set()).add(c["id"])
# Memory that has lived: a third of it was given back and partly used again.
for i in range(0, len(orders), 3):
    orders[i] = None
cache = {f"page:{i}": f"<li>{customers[i]['name']} of {customers[i]['city']}</li>" * 3 for i in range(0, 60_000, 4)}
input()
